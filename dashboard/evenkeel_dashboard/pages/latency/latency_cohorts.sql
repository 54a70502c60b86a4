-- One latency measure by cohort over a range, the largest cohorts first.
SELECT
    cohort,
    sum(weight) AS num_requests,
    quantilesExactInclusiveArray(0.5, 0.95, 0.99)(values) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s,
    toUnixTimestamp64Milli(max(time)) AS newest_ms
FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
)
WHERE notEmpty(values)
GROUP BY cohort
ORDER BY num_requests DESC, cohort
LIMIT 40
