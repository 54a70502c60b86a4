-- The heatmap of a long range of whole minutes, from the minute rollup: each step's digest gives the
-- value in the middle of every percent of its requests, the last percent in two halves.
-- A digest holds the whole distribution; the levels in its type only select what is returned, so other
-- levels are read by casting its bytes. Their number of requests is read as in latency_cohorts_1m.sql.
WITH
    CAST(digest, 'String') AS bytes,
    CAST(if(length(bytes) > 1, substring(bytes, 2), '\0'), 'AggregateFunction(groupArray, UInt64)') AS centroids
SELECT
    bucket,
    toInt32(floor(log10(greatest(value, 1e-6)) * 10)) AS bin,
    sum(in_step * if(place > 99, 0.005, 0.01)) AS num_requests
FROM
(
    SELECT
        bucket,
        arraySum(centroid -> reinterpretAsFloat32(toUInt32(bitShiftRight(centroid, 32))),
            finalizeAggregation(centroids)) AS in_step,
        finalizeAggregation(CAST(bytes, 'AggregateFunction(quantilesTDigest(
                0.005, 0.015, 0.025, 0.035, 0.045, 0.055, 0.065, 0.075, 0.085, 0.095, 0.105, 0.115,
                0.125, 0.135, 0.145, 0.155, 0.165, 0.175, 0.185, 0.195, 0.205, 0.215, 0.225, 0.235,
                0.245, 0.255, 0.265, 0.275, 0.285, 0.295, 0.305, 0.315, 0.325, 0.335, 0.345, 0.355,
                0.365, 0.375, 0.385, 0.395, 0.405, 0.415, 0.425, 0.435, 0.445, 0.455, 0.465, 0.475,
                0.485, 0.495, 0.505, 0.515, 0.525, 0.535, 0.545, 0.555, 0.565, 0.575, 0.585, 0.595,
                0.605, 0.615, 0.625, 0.635, 0.645, 0.655, 0.665, 0.675, 0.685, 0.695, 0.705, 0.715,
                0.725, 0.735, 0.745, 0.755, 0.765, 0.775, 0.785, 0.795, 0.805, 0.815, 0.825, 0.835,
                0.845, 0.855, 0.865, 0.875, 0.885, 0.895, 0.905, 0.915, 0.925, 0.935, 0.945, 0.955,
                0.965, 0.975, 0.985, 0.9925, 0.9975
            ), Nullable(Float64))')) AS found
    FROM
    (
        SELECT
            toStartOfInterval(minute, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
            quantilesTDigestMergeState(0.5, 0.95, 0.99)({column:Identifier}) AS digest
        FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
        WHERE ({model:String} = '' OR model = {model:String})
            AND ({tenant:String} = '' OR tenant = {tenant:String})
            AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
            AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        GROUP BY bucket
    )
)
ARRAY JOIN found AS value, arrayEnumerate(found) AS place
WHERE isFinite(value)
GROUP BY bucket, bin
ORDER BY bucket, bin
