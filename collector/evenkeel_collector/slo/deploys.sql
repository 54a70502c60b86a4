-- The newest instance that began to send within [from_ns, to_ns) after another one of its service,
-- among services that served the model: a deploy, a restart, or one more replica.
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
        WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
            AND ServiceName GLOBAL IN (
                SELECT DISTINCT requests.service
                FROM requests
                WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
                    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
                    AND ({model:String} = '' OR requests.model = {model:String})
            )
        GROUP BY service, instance
    )
)
WHERE place > 1
ORDER BY first DESC
LIMIT 1
-- Without an index: an alert does not wait for it longer.
SETTINGS max_execution_time = 3
