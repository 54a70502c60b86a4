-- Seconds of engines, and energy of their GPUs, by what they were spent on and by quarter of an hour, in which prices
-- are constant: all time zones are whole quarters from UTC. From the counters that the runtime's /metrics has. After a restart a counter begins at 0 again. What came
-- before the range is read for the first difference. What a tenant's token sent is not of the fleet's engines.
SELECT
    toStartOfFifteenMinutes(time) AS period,
    kind,
    model,
    ifNull(sumIf(more, name = 'evenkeel_engine_seconds_total'), 0) AS spent_s,
    ifNull(sumIf(more, name = 'evenkeel_engine_energy_joules_total'), 0) AS energy_j
FROM
(
    SELECT
        toDateTime(engine_state.time, 'UTC') AS time,
        name,
        attributes['kind'] AS kind,
        model,
        value,
        lagInFrame(toNullable(value)) OVER (
            PARTITION BY name, service, instance, attributes ORDER BY engine_state.time) AS before,
        if(isNull(before), 0, if(value >= before, value - before, value)) AS more
    FROM engine_state
    WHERE name IN ('evenkeel_engine_seconds_total', 'evenkeel_engine_energy_joules_total')
        AND engine_state.time >= fromUnixTimestamp64Milli({from_ms:Int64} - 600000, 'UTC')
        AND engine_state.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        AND ({model:String} = '' OR model IN ('', {model:String}))
        AND isNotNull(value)
        AND resource_attributes['evenkeel.tenant'] = ''
)
WHERE time >= toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC')
GROUP BY period, kind, model
ORDER BY period, kind, model
