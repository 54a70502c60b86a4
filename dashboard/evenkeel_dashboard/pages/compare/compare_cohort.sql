-- Mean properties of a cohort's requests, which may explain why it is slower than another.
SELECT
    sum(sample_weight) AS num_requests,
    avgOrNull(queue_s) AS queue_s,
    avgOrNull(prefill_s) AS prefill_s,
    avgOrNull(decode_s) AS decode_s,
    avgOrNull(stall_s) AS stall_s,
    avgOrNull(input_tokens) AS input_tokens,
    avgOrNull(cached_tokens) AS cached_tokens,
    avgOrNull(output_tokens) AS output_tokens,
    sumIf(sample_weight, status = 'error') / nullIf(num_requests, 0) AS error_ratio,
    sumIf(sample_weight, status = 'aborted') / nullIf(num_requests, 0) AS aborted_ratio,
    sum(requests.cached_tokens) / nullIf(sum(requests.input_tokens), 0) AS cached_ratio,
    sum(accepted_tokens) / nullIf(sum(drafted_tokens), 0) AS acceptance_rate,
    avgMap(ledger) AS ledger_s
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({service:String} = '' OR service = {service:String})
    AND ({engine:String} = '' OR engine = {engine:String})
    AND ({setup:String} = '' OR concat(ifNull(dtype, '?'), ', KV ', ifNull(kv_cache_dtype, '?'),
        ', TP ', ifNull(toString(tensor_parallel), '?'), ', PP ', ifNull(toString(pipeline_parallel), '?')) = {setup:String})
