-- One latency measure by step and cohort; cohorts that are not wanted are left out.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    cohort,
    quantileExactInclusiveArray(0.5)(values) AS p50_s,
    quantileExactInclusiveArray(0.95)(values) AS p95_s,
    quantileExactInclusiveArray(0.99)(values) AS p99_s
FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
)
WHERE notEmpty(values) AND cohort IN {cohorts:Array(String)}
GROUP BY bucket, cohort
ORDER BY bucket, cohort
