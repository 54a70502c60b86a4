-- Requests by step and latency bin; ten bins cover a factor of 10.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    toInt32(floor(log10(greatest(value, 1e-6)) * 10)) AS bin,
    sum(row_weight) * {one_in:UInt32} AS num_requests
FROM
(
    SELECT time, if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS row_weight, values
    FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
)
)
ARRAY JOIN values AS value
WHERE isFinite(value)
GROUP BY bucket, bin
ORDER BY bucket, bin
