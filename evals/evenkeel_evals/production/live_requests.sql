-- Requests that arrived in a window, for a live evaluation to sample; excludes evaluation requests.
SELECT
    trace_id, span_id, toUnixTimestamp64Nano(time) AS time_ns, ttft_s, e2e_s, status, finish_reason,
    model, tenant, slo_class, route, prompt_name, prompt_version, response_cache,
    input_tokens, output_tokens, cost
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND time < fromUnixTimestamp64Nano({to_ns:Int64})
  AND ({model:String} = '' OR model = {model:String})
  AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
  AND ifNull(route, '') != 'eval'
ORDER BY trace_id, span_id
