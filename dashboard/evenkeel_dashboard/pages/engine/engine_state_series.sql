-- What engines' own metrics measure per interval, under our names (evenkeel/engines): the mean of a
-- gauge, summed over instances unless it is a ratio; the increase of a counter, and its rate over the time
-- since the reading before, which is longer than a short interval. After an engine restart, a counter
-- increases from 0. `label` is the reason, position or source, if there is one. What a tenant's token sent is
-- another series than the fleet's, whatever instance it names.
SELECT bucket, engine, measure, label,
    multiIf(is_counter, sum(growth), match(measure, '_(ratio|rate)$'), avg(mean), sum(mean)) AS value,
    if(is_counter, sumOrNull(known_growth / nullIf(elapsed_s, 0)), NULL) AS per_s
FROM
(
    SELECT
        toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
        engine,
        measure,
        label,
        is_counter,
        avg(read) AS mean,
        sum(multiIf(is_delta, read, isNull(before), 0, read >= before, read - before, read) AS grown)
            AS growth,
        sumIf(grown, isNotNull(before)) AS known_growth,
        sumIf(toUnixTimestamp64Nano(time) - before_ns, isNotNull(before)) / 1e9 AS elapsed_s
    FROM
    (
        SELECT
            time,
            service,
            instance,
            resource_attributes['evenkeel.tenant'] AS of_tenant,
            attributes,
            {engines:Array(String)}[place] AS engine,
            {measures:Array(String)}[place] AS measure,
            {are_counters:Array(UInt8)}[place] = 1 AS is_counter,
            {are_deltas:Array(UInt8)}[place] = 1 OR engine_state.temporality = 'delta' AS is_delta,
            if({are_sums:Array(UInt8)}[place] = 1, engine_state.sum, engine_state.value)
                * {scales:Array(Float64)}[place] AS read,
            coalesce(
                nullIf(attributes['reason'], ''), nullIf(attributes['position'], ''),
                nullIf(attributes['source'], ''), '') AS label,
            lagInFrame(toNullable(read)) OVER (
                PARTITION BY key, service, instance, of_tenant, attributes ORDER BY time) AS before,
            lagInFrame(toUnixTimestamp64Nano(time)) OVER (
                PARTITION BY key, service, instance, of_tenant, attributes ORDER BY time) AS before_ns
        FROM
        (
            SELECT *,
                replaceRegexpOne(toString(engine_state.name), '_total$', '') AS base,
                transform(base, {labelled:Array(String)}, {label_names:Array(String)}, '') AS by_label,
                if(by_label = '', base, concat(base, '{', by_label, '=', attributes[by_label], '}'))
                    AS key,
                transform(key, {keys:Array(String)}, {places:Array(UInt16)}, 0) AS place
            FROM engine_state
            WHERE engine_state.name IN {names:Array(String)}
                AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
                -- An engine that names no model is found by its service, as its requests are.
                AND ({model:String} = '' OR model = {model:String}
                    OR (model = '' AND service = {model:String}))
        ) AS engine_state
        WHERE place > 0 AND isNotNull(read)
    )
    GROUP BY bucket, engine, measure, label, is_counter, service, instance, of_tenant, attributes
)
GROUP BY bucket, engine, measure, label, is_counter
ORDER BY bucket, engine, measure, label
