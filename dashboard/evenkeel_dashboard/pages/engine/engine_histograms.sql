-- What engines' own histograms counted within a range, under our names (evenkeel/engines): per engine and
-- measure, the bounds in our unit and the observations per bucket. After a restart, they count from 0. Names that
-- engines share count for a source without an engine of its own names, and are of the engine that it says it is,
-- by the rule of requests (requests_of_others.sql). `mapped_as` is the file that the name is in.
WITH
    -- Labels of a Prometheus page have no dots.
    (label -> arrayFirst(value -> value != '', [attributes[label],
        attributes[replaceAll(label, '.', '_')], resource[label]])) AS said,
    lower(said('evenkeel.engine.name')) AS told,
    lower(if(said('gen_ai.provider.name') != '', said('gen_ai.provider.name'), said('gen_ai.system'))) AS provider,
    has({shared:Array(String)}, mapped_as) AS is_shared
SELECT
    multiIf(NOT is_shared, mapped_as,
        match(told, '^[a-z0-9][a-z0-9.-]{0,39}$'), told,
        transform(provider, {providers:Array(String)}, {provider_engines:Array(String)}, mapped_as)) AS engine,
    mapped_as, measure, bounds, arrayMap(num -> toUInt64(greatest(num, 0)), sumForEach(growth)) AS counts
FROM
(
    SELECT mapped_as, measure, bounds, service, instance, attributes,
        any(resource_attributes) AS resource,
        sumForEach(multiIf(
            temporality = 'delta', counted,
            empty(before), arrayResize(emptyArrayInt64(), length(counted)),
            -- A page that is read while it changes may move one from bucket to bucket, not from their sums.
            arrayExists((a, b) -> a < b, arrayCumSum(counted), arrayCumSum(before)), counted,
            arrayMap((a, b) -> a - b, counted, before))) AS growth
    FROM
    (
        SELECT time, service, instance, attributes, resource_attributes, temporality,
            resource_attributes['evenkeel.tenant'] AS of_tenant,
            CAST(bucket_counts, 'Array(Int64)') AS counted,
            replaceRegexpOne(toString(engine_state.name), '_total$', '') AS base,
            transform(base, {labelled:Array(String)}, {label_names:Array(String)}, '') AS by_label,
            if(by_label = '', base, concat(base, '{', by_label, '=', attributes[by_label], '}')) AS key,
            transform(key, {keys:Array(String)}, {places:Array(UInt16)}, 0) AS place,
            {engines:Array(String)}[place] AS mapped_as,
            {measures:Array(String)}[place] AS measure,
            arrayMap(bound -> bound * {scales:Array(Float64)}[place], engine_state.bounds) AS bounds,
            lagInFrame(counted) OVER (
                PARTITION BY key, service, instance, of_tenant, attributes, temporality, bounds
                ORDER BY time) AS before
        FROM engine_state
        WHERE engine_state.name IN {names:Array(String)}
            AND engine_state.kind = 'histogram'
            AND notEmpty(bucket_counts)
            AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND ({model:String} = '' OR model = {model:String}
                OR attributes['gen_ai_request_model'] = {model:String}
                OR (model = '' AND service = {model:String}))
    )
    WHERE place > 0
    GROUP BY mapped_as, measure, bounds, service, instance, of_tenant, attributes, base, temporality
)
WHERE NOT (is_shared AND (service, instance) IN (
    SELECT service, instance
    FROM engine_state
    WHERE name IN {own_names:Array(String)}
        AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')))
GROUP BY engine, mapped_as, measure, bounds
ORDER BY engine, measure
