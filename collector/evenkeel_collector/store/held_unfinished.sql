-- Batches of decisions that were written but, after a crash or an error, perhaps not carried out: a finished
-- one has a row without ids.
SELECT
    batch,
    toUnixTimestamp64Milli(min(held_from)) AS from_ms,
    toUnixTimestamp64Milli(max(held_to)) AS to_ms
FROM {settled:Identifier}
WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
    AND (startsWith(batch, 'counted-') OR startsWith(batch, 'withdrawn-'))
GROUP BY batch
HAVING countIf(trace_id = '') = 0
ORDER BY min(settled_at)
