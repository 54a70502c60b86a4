-- One latency measure by cohort over a range, the largest cohorts first.
-- Quantiles with weights take several times as long, so they are computed only if a request weighs more
-- than 1: `is_sampled` is a constant.
WITH
    if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS row_weight,
    (
        SELECT countIf(sample_weight > 1) > 0
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    ) AS is_sampled
SELECT
    cohort,
    sum(row_weight) * {one_in:UInt32} AS num_requests,
    if(is_sampled,
        quantilesExactWeightedInterpolatedArray(0.5, 0.95, 0.99)(
            values, arrayMap(value -> toUInt32(round(row_weight)), values)),
        quantilesExactInclusiveArray(0.5, 0.95, 0.99)(values)) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
    count() OVER () AS num_cohorts
FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
)
WHERE notEmpty(values)
GROUP BY cohort
ORDER BY num_requests DESC, cohort
LIMIT 400
