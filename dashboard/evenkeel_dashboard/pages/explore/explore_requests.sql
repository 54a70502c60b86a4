-- Requests matching the guided filters, a page of them; a bound of 0 is no bound.
SELECT
    requests.time AS time, toUnixTimestamp64Milli(requests.time) AS time_ms, request_id, trace_id, model, tenant, session_id, slo_class, route,
    prompt_name, prompt_version, status, finish_reason, error_type, input_tokens, cached_tokens,
    output_tokens, wasted_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, itl_p99_s, stall_s,
    e2e_s, drafted_tokens, accepted_tokens, response_cache, engine,
    toString(requests.source) AS source
FROM requests
WHERE requests.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND requests.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({status:String} = '' OR status = {status:String})
    AND ({finish_reason:String} = '' OR finish_reason = {finish_reason:String})
    AND ({route:String} = '' OR route = {route:String})
    AND ({response_cache:String} = '' OR response_cache = {response_cache:String})
    AND ({session:String} = '' OR session_id = {session:String})
    AND ({engine:String} = '' OR engine = {engine:String})
    AND ({min_ttft_s:Float64} <= 0 OR ttft_s >= {min_ttft_s:Float64})
    AND ({min_e2e_s:Float64} <= 0 OR e2e_s >= {min_e2e_s:Float64})
    AND ({min_stall_s:Float64} <= 0 OR stall_s >= {min_stall_s:Float64})
    AND ({min_input_tokens:Float64} <= 0 OR input_tokens >= {min_input_tokens:Float64})
    AND ({min_output_tokens:Float64} <= 0 OR output_tokens >= {min_output_tokens:Float64})
    AND ({min_reasoning_tokens:Float64} <= 0 OR reasoning_tokens >= {min_reasoning_tokens:Float64})
    AND ({min_repeated_share:Float64} <= 0 OR repeated_share >= {min_repeated_share:Float64})
    AND ({answer:String} != 'empty' OR (status = 'ok'
        AND ifNull(visible_tokens, output_tokens - ifNull(reasoning_tokens, 0)) <= 0))
    AND ({answer:String} != 'failed_tools' OR tool_calls_failed > 0)
ORDER BY
    multiIf({order_by:String} = 'ttft', ttft_s, {order_by:String} = 'e2e', e2e_s,
        {order_by:String} = 'stall', stall_s, {order_by:String} = 'input', toFloat64(input_tokens),
        {order_by:String} = 'output', toFloat64(output_tokens),
        {order_by:String} = 'reasoning', toFloat64(reasoning_tokens),
        {order_by:String} = 'repeated', repeated_share, toFloat64(time_ms)) DESC NULLS LAST,
    request_id
LIMIT {limit:UInt32} OFFSET {offset:UInt32}
