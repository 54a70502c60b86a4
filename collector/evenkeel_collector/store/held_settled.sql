-- Earlier decisions on held requests of the same traces: those that count.
SELECT trace_id, span_id
FROM settled_requests
WHERE settled_at >= fromUnixTimestamp64Milli({since_ms:Int64}, 'UTC')
    AND trace_id GLOBAL IN (
        SELECT trace_id FROM {held:Identifier}
        WHERE held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC'))
GROUP BY trace_id, span_id
HAVING argMax(is_counted, settled_at)
LIMIT {of_one:UInt32} BY trace_id
LIMIT {limit:UInt32}
