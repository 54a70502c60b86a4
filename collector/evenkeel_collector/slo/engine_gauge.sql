-- The mean of a gauge of engines over a span, one row a series; with `per_keys`, the mean of the one
-- divided by the mean of the other, where both were read at once. A series is an instance and the
-- labels that no side fixes; `usual` are the bounds of nine of ten readings. Readings that are not there are no 0. With `idle_keys`, only readings
-- taken while that gauge was 0 count. A gauge may have a name per engine (evenkeel/engines): its keys are
-- `name` or `name{label=value}`, each with its factor. A tenant's readings are series of their own, with its
-- name as the label `tenant`, whatever instance they name.
SELECT service, instance, rest, count() AS num_readings,
    if(empty({per_keys:Array(String)}), avg(upper), avg(upper) / nullIf(avg(lower), 0)) AS value,
    quantiles(0.05, 0.95)(if(empty({per_keys:Array(String)}), upper, upper / nullIf(lower, 0))) AS usual
FROM
(
    SELECT service, instance, time,
        mapUpdate(
            mapFilter(
                (label, _) -> NOT has(arrayConcat({labels:Array(String)}, {per_labels:Array(String)},
                    {idle_labels:Array(String)}, {label_names:Array(String)}), label),
                attributes
            ),
            mapFilter((label, of) -> of != '', CAST(map('tenant', of_tenant), toTypeName(attributes)))
        ) AS rest,
        sumOrNullIf(scaled, has({metric_keys:Array(String)}, key) AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {labels:Array(String)}, {wanted:Array(String)})) AS upper,
        sumOrNullIf(scaled, has({per_keys:Array(String)}, key) AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {per_labels:Array(String)}, {per_wanted:Array(String)})) AS lower,
        sumOrNullIf(scaled, has({idle_keys:Array(String)}, key) AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {idle_labels:Array(String)}, {idle_wanted:Array(String)})) AS idle
    FROM
    (
        SELECT service, instance, time, attributes,
            resource_attributes['evenkeel.tenant'] AS of_tenant,
            transform(toString(engine_state.name), {labelled:Array(String)}, {label_names:Array(String)},
                '') AS by_label,
            if(by_label = '', toString(engine_state.name),
                concat(engine_state.name, '{', by_label, '=', attributes[by_label], '}')) AS key,
            engine_state.value * transform(key, {keys:Array(String)}, {scales:Array(Float64)}, 1.)
                AS scaled
        FROM engine_state
        WHERE name IN {names:Array(String)}
            AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
            AND ({model:String} = '' OR model = {model:String}
                OR (model = '' AND service = {model:String}))
    )
    GROUP BY service, instance, time, rest
)
WHERE upper IS NOT NULL AND (empty({per_keys:Array(String)}) OR lower IS NOT NULL)
    AND (empty({idle_keys:Array(String)}) OR idle = 0)
GROUP BY service, instance, rest
ORDER BY value DESC, service, instance
