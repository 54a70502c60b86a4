-- One latency measure by step and cohort, only for the requested cohorts.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    cohort,
    quantilesExactInclusiveArray(0.5, 0.95, 0.99)(values) AS found,
    found[1] AS p50_s, found[2] AS p95_s, found[3] AS p99_s
FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
)
WHERE notEmpty(values) AND cohort IN {cohorts:Array(String)}
GROUP BY bucket, cohort
ORDER BY bucket, cohort
