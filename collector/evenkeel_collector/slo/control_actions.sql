-- The newest change that the runtime made by itself within [from_ns, to_ns): attributes of spans
-- named evenkeel.<what>.change. With a tenant, those on its own spans; without, not those that a tenant's
-- token sent.
SELECT
    arrayFirst(key -> key LIKE 'evenkeel._%.change', mapKeys(SpanAttributes)) AS attribute,
    SpanAttributes[attribute] AS change,
    SpanAttributes AS attributes,
    toUnixTimestamp64Nano(Timestamp) AS time_ns
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND arrayExists(key -> key LIKE 'evenkeel._%.change', mapKeys(SpanAttributes))
    AND if({tenant:String} != '' AND SpanAttributes['evenkeel.tenant'] != '',
        SpanAttributes['evenkeel.tenant'], ResourceAttributes['evenkeel.tenant']) = {tenant:String}
ORDER BY Timestamp DESC
LIMIT 1
-- Without an index: an alert does not wait for it longer.
SETTINGS max_execution_time = 3
