-- Arrival of the newest request in the store; NULL if the store is empty.
SELECT toUnixTimestamp64Milli(maxOrNull(time)) AS newest_ms FROM evenkeel.requests
