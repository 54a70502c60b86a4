-- The newest instance that began to send within [from_ns, to_ns) after another one of its service,
-- among services that served the requests that an SLO selects: a deploy, a restart, or one more replica.
-- An instance that sent within the day before from_ns is not new, however late it sends again.
-- A tenant's alert names only instances with spans of that tenant, any other none that a tenant's token sent.
SELECT service, instance, host, version, before, toUnixTimestamp64Nano(first) AS first_ns
FROM
(
    SELECT service, instance, host, version, first,
        lagInFrame(version) OVER (PARTITION BY service ORDER BY first) AS before,
        row_number() OVER (PARTITION BY service ORDER BY first) AS place
    FROM
    (
        SELECT
            ServiceName AS service,
            ResourceAttributes['service.instance.id'] AS instance,
            any(ResourceAttributes['host.name']) AS host,
            any(ResourceAttributes['service.version']) AS version,
            min(Timestamp) AS first
        FROM spans
        WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64} - 86400000000000, 'UTC')
            AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
            AND ({tenant:String} != '' OR ResourceAttributes['evenkeel.tenant'] = '')
            AND ServiceName GLOBAL IN (
                SELECT DISTINCT requests.service
                FROM requests
                WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
                    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
                    AND ({model:String} = '' OR requests.model = {model:String})
                    AND ({tenant:String} = '' OR requests.tenant = {tenant:String})
                    AND ({slo_class:String} = '' OR requests.slo_class = {slo_class:String})
                    AND ({route:String} = '' OR requests.route = {route:String})
                    AND ({prompt_name:String} = '' OR requests.prompt_name = {prompt_name:String})
                    AND ({engine:String} = '' OR requests.engine = {engine:String})
                    AND arrayAll(
                        (column, pattern, excludes) -> match(multiIf(
                            column = 'model', toString(requests.model),
                            column = 'tenant', toString(ifNull(requests.tenant, '')),
                            column = 'slo_class', toString(ifNull(requests.slo_class, '')),
                            column = 'route', toString(ifNull(requests.route, '')),
                            column = 'prompt_name', toString(ifNull(requests.prompt_name, '')),
                            toString(ifNull(requests.engine, ''))
                        ), pattern) != excludes,
                        {filter_column:Array(String)}, {filter_pattern:Array(String)},
                        {filter_excludes:Array(UInt8)}
                    )
            )
        GROUP BY service, instance
        HAVING {tenant:String} = '' OR countIf(if(SpanAttributes['evenkeel.tenant'] != '',
            SpanAttributes['evenkeel.tenant'], ResourceAttributes['evenkeel.tenant'])
            = {tenant:String}) > 0
    )
)
WHERE place > 1 AND first >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
ORDER BY first DESC
LIMIT 1
-- Without an index: an alert does not wait for it longer.
SETTINGS max_execution_time = 3
