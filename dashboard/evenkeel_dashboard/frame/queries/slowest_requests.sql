-- The slowest requests of a range by one measure, slowest first.
SELECT
    toUnixTimestamp64Milli(requests.time) AS time_ms, request_id, trace_id, model, tenant, slo_class, prompt_name, prompt_version, status,
    finish_reason, error_type, input_tokens, cached_tokens, output_tokens, queue_s, prefill_s,
    decode_s, ttft_s, tpot_s, stall_s, e2e_s, toString(requests.source) AS source,
    multiIf(
        {rank_by:String} = 'ttft', ttft_s,
        {rank_by:String} = 'stall', stall_s,
        {rank_by:String} = 'tpot', tpot_s,
        e2e_s) AS rank_s
FROM evenkeel.requests
-- Finds the few slowest by reading only the columns needed, then reads just those rows in full.
WHERE (requests.model, requests.time) GLOBAL IN
(
    SELECT model, time
    FROM evenkeel.requests
    WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
      AND time < fromUnixTimestamp64Milli({to_ms:Int64})
      AND ({model:String} = '' OR model = {model:String})
      AND ({tenant:String} = '' OR tenant = {tenant:String})
      AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
      AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
      AND ({rank_by:String} != 'failed' OR status != 'ok')
    ORDER BY multiIf(
        {rank_by:String} = 'ttft', ttft_s,
        {rank_by:String} = 'stall', stall_s,
        {rank_by:String} = 'tpot', tpot_s,
        e2e_s) DESC NULLS LAST
    LIMIT {limit:UInt32}
)
  AND requests.time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND requests.time < fromUnixTimestamp64Milli({to_ms:Int64})
  -- Others may have arrived at the same nanosecond.
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
  AND ({rank_by:String} != 'failed' OR status != 'ok')
  AND rank_s IS NOT NULL
ORDER BY rank_s DESC, request_id
LIMIT {limit:UInt32}
