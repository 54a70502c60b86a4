-- The newest batch of decisions, if a version wrote it that did not mark finished batches: after a crash, its
-- requests may not all be in `requests`.
SELECT batch, from_ms, to_ms
FROM (
    SELECT batch, toUnixTimestamp64Milli(held_from) AS from_ms, toUnixTimestamp64Milli(held_to) AS to_ms
    FROM {settled:Identifier}
    ORDER BY settled_at DESC
    LIMIT 1
)
WHERE NOT startsWith(batch, 'counted-') AND NOT startsWith(batch, 'withdrawn-')
