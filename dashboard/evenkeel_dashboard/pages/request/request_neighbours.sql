-- Requests of the same model in flight at the same time: first those in prefill, which crowd a
-- batch, and of these the largest prompts.
SELECT
    toUnixTimestamp64Milli(time) AS time_ms, request_id, tenant, prompt_name, prompt_version,
    status, input_tokens, cached_tokens, output_tokens, queue_s, prefill_s, decode_s, ttft_s, e2e_s,
    (toUnixTimestamp64Nano(time) - {start_ns:Int64}) / 1e9 AS offset_s,
    input_tokens - ifNull(cached_tokens, 0) AS prefilled_tokens,
    offset_s + greatest(ifNull(queue_s, 0), ifNull(ttft_s - prefill_s, 0)) AS prefill_start_s,
    isNotNull(prefill_s)
        AND prefill_start_s < ({end_ns:Int64} - {start_ns:Int64}) / 1e9
        AND prefill_start_s + ifNull(prefill_s, 0) > 0 AS is_prefilling_meanwhile,
    count() OVER () AS num_neighbours
FROM evenkeel.requests
WHERE model = {model:String}
  AND request_id != {request_id:String}
  AND status != 'shed'
  AND time >= fromUnixTimestamp64Nano({start_ns:Int64} - 900000000000)
  AND time < fromUnixTimestamp64Nano({end_ns:Int64})
  AND offset_s + ifNull(e2e_s, 0) > 0
ORDER BY is_prefilling_meanwhile DESC, prefilled_tokens DESC NULLS LAST, time
LIMIT {limit:UInt32}
