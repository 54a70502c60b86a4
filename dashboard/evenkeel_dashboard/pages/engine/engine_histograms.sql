-- What engines' own histograms counted within a range, under our names (evenkeel/engines): per engine and
-- measure, the bounds in our unit and the observations per bucket. After a restart, those since it.
SELECT engine, measure, bounds, sumForEach(growth) AS counts
FROM
(
    SELECT engine, measure, bounds,
        argMin(bucket_counts, time) AS first_counts,
        argMax(bucket_counts, time) AS last_counts,
        if(arrayExists((a, b) -> a < b, last_counts, first_counts), last_counts,
            arrayMap((a, b) -> toUInt64(a - b), last_counts, first_counts)) AS growth
    FROM
    (
        SELECT time, service, instance, attributes, bucket_counts,
            replaceRegexpOne(toString(engine_state.name), '_total$', '') AS base,
            transform(base, {labelled:Array(String)}, {label_names:Array(String)}, '') AS by_label,
            if(by_label = '', base, concat(base, '{', by_label, '=', attributes[by_label], '}')) AS key,
            transform(key, {keys:Array(String)}, {places:Array(UInt16)}, 0) AS place,
            {engines:Array(String)}[place] AS engine,
            {measures:Array(String)}[place] AS measure,
            arrayMap(bound -> bound * {scales:Array(Float64)}[place], engine_state.bounds) AS bounds
        FROM engine_state
        WHERE engine_state.name IN {names:Array(String)}
            AND engine_state.kind = 'histogram'
            AND notEmpty(bucket_counts)
            AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND ({model:String} = '' OR model = {model:String}
                OR (model = '' AND service = {model:String}))
    )
    WHERE place > 0
    GROUP BY engine, measure, bounds, service, instance, attributes, base
)
GROUP BY engine, measure, bounds
ORDER BY engine, measure
