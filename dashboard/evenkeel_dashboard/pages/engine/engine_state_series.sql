-- vLLM's own gauges and counters per interval, summed over engines: the mean of a gauge, the increase
-- of a counter. After an engine restart, a counter increases from 0. `label` is the reason, position
-- or source, if there is one.
SELECT bucket, name, label, if(is_counter, sum(growth), sum(mean)) AS value
FROM
(
    SELECT
        toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
        replaceRegexpOne(toString(name), '_total$', '') AS name,
        label,
        is_monotonic AS is_counter,
        avg(value) AS mean,
        sum(if(isNull(before), 0, if(value >= before, value - before, value))) AS growth
    FROM
    (
        SELECT
            time, engine_state.name AS name, is_monotonic, service, instance, value,
            coalesce(
                nullIf(attributes['reason'], ''), nullIf(attributes['position'], ''),
                nullIf(attributes['source'], ''), '') AS label,
            lagInFrame(toNullable(value)) OVER (
                PARTITION BY name, service, instance, attributes ORDER BY time) AS before
        FROM engine_state
        WHERE engine_state.name IN {names:Array(String)}
            AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND ({model:String} = '' OR model = {model:String})
            AND isNotNull(value)
    )
    GROUP BY bucket, name, label, is_counter, service, instance
)
GROUP BY bucket, name, label, is_counter
ORDER BY bucket, name, label
