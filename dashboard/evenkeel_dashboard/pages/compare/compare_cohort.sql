-- Mean properties of a cohort's requests, which may explain why it is slower than another. A cause's
-- seconds are divided by all requests with a ledger: a ledger leaves out causes that took no time.
-- Weighting maps takes several times as long, so it is done only if a request weighs more than 1:
-- `is_sampled` is a constant.
WITH
    if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight,
    (
        SELECT countIf(sample_weight > 1) > 0
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    ) AS is_sampled
SELECT
    sum(weight) AS num_requests,
    avgWeightedOrNull(requests.queue_s, weight) AS queue_s,
    avgWeightedOrNull(requests.prefill_s, weight) AS prefill_s,
    avgWeightedOrNull(requests.decode_s, weight) AS decode_s,
    avgWeightedOrNull(requests.stall_s, weight) AS stall_s,
    avgWeightedOrNull(requests.input_tokens, weight) AS input_tokens,
    avgWeightedOrNull(requests.cached_tokens, weight) AS cached_tokens,
    avgWeightedOrNull(requests.output_tokens, weight) AS output_tokens,
    sumIf(weight, status = 'error') / nullIf(num_requests, 0) AS error_ratio,
    sumIf(weight, status = 'aborted') / nullIf(num_requests, 0) AS aborted_ratio,
    sumIf(requests.cached_tokens * weight, isNotNull(requests.input_tokens))
        / nullIf(sumIf(requests.input_tokens * weight, isNotNull(requests.cached_tokens)), 0)
        AS cached_ratio,
    sum(accepted_tokens * weight) / nullIf(sum(drafted_tokens * weight), 0) AS acceptance_rate,
    sumIf(weight, notEmpty(ledger)) AS num_ledgers,
    mapApply((cause, seconds) -> (cause, seconds / num_ledgers), if(is_sampled,
        sumMap(mapApply((cause, seconds) -> (cause, seconds * weight), ledger)),
        sumMap(ledger))) AS ledger_s
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
