-- The parents of the spans of all traces that have held requests. Of a huge trace of a tenant, which would leave no
-- room for others, not all.
SELECT trace_id, span_id, parent_span_id, toString(tenant) AS of_tenant,
    toUnixTimestamp(time) AS time_s
FROM span_parents
WHERE trace_id GLOBAL IN (
    SELECT trace_id FROM {held:Identifier}
    WHERE held_at BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
)
LIMIT {of_one:UInt32} BY trace_id, of_tenant
LIMIT {limit:UInt32}
