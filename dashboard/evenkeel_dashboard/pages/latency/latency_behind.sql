-- The requests behind a point or bin: within a range of times and values, nearest to a value first.
SELECT
    toUnixTimestamp64Milli(m.time) AS time_ms, request_id, trace_id, model, tenant, slo_class,
    prompt_name, prompt_version, status, finish_reason, error_type, input_tokens, cached_tokens,
    output_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, stall_s, e2e_s,
    arrayMin(value -> abs(value - {near_s:Float64}),
        arrayFilter(value -> value >= {low_s:Float64} AND value < {high_s:Float64}, values))
        AS distance_s,
    count() OVER () AS num_found
FROM latency_values(
    measure = {measure:String}, definition = {definition:String}, dimension = {dimension:String},
    one_in = {one_in:UInt32}, from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64},
    model = {model:String}, tenant = {tenant:String}, prompt = {prompt:String},
    slo_class = {slo_class:String}
) AS m
WHERE arrayExists(value -> value >= {low_s:Float64} AND value < {high_s:Float64}, values)
    AND ({cohort:String} = '' OR cohort = {cohort:String})
ORDER BY distance_s, request_id
LIMIT {limit:UInt32}
