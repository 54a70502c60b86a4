-- When the newest request of the store arrived; NULL in an empty store.
SELECT toUnixTimestamp64Milli(maxOrNull(time)) AS newest_ms FROM evenkeel.requests
