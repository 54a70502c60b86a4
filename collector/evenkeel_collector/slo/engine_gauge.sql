-- The mean of a gauge of engines over a span, one row a series; with `per_metric`, the mean of the one
-- divided by the mean of the other, where both were read at once. A series is an instance and the
-- labels that no side fixes. Readings that are not there are no 0. With `idle_metric`, only readings
-- taken while that gauge was 0 count.
SELECT service, instance, rest, count() AS num_readings,
    if({per_metric:String} = '', avg(upper), avg(upper) / nullIf(avg(lower), 0)) AS value
FROM
(
    SELECT service, instance, time,
        mapFilter(
            (label, _) -> NOT has(arrayConcat({labels:Array(String)}, {per_labels:Array(String)},
                {idle_labels:Array(String)}), label),
            attributes
        ) AS rest,
        sumOrNullIf(engine_state.value, name = {metric:String} AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {labels:Array(String)}, {wanted:Array(String)})) AS upper,
        sumOrNullIf(engine_state.value, name = {per_metric:String} AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {per_labels:Array(String)}, {per_wanted:Array(String)})) AS lower,
        sumOrNullIf(engine_state.value, name = {idle_metric:String} AND arrayAll(
            (label, wanted) -> attributes[label] = wanted,
            {idle_labels:Array(String)}, {idle_wanted:Array(String)})) AS idle
    FROM engine_state
    WHERE name IN ({metric:String}, {per_metric:String}, {idle_metric:String})
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
    GROUP BY service, instance, time, rest
)
WHERE upper IS NOT NULL AND ({per_metric:String} = '' OR lower IS NOT NULL)
    AND ({idle_metric:String} = '' OR idle = 0)
GROUP BY service, instance, rest
ORDER BY value DESC, service, instance
