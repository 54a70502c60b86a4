-- The newest batch of decisions; after a crash, its requests may not all be in `requests`.
SELECT batch, toUnixTimestamp64Milli(held_from) AS from_ms, toUnixTimestamp64Milli(held_to) AS to_ms
FROM {settled:Identifier}
ORDER BY settled_at DESC
LIMIT 1
