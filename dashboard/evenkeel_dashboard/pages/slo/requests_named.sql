-- The requests with the given model, arrival and id, ordered by id.
SELECT
    toUnixTimestamp64Milli(requests.time) AS time_ms, request_id, trace_id, model, tenant, slo_class,
    prompt_name, prompt_version, toString(status) AS status, finish_reason, error_type, input_tokens,
    cached_tokens, output_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, stall_s, e2e_s
FROM evenkeel.requests
WHERE (requests.model, requests.time) IN
(
    SELECT named.1, fromUnixTimestamp64Nano(named.2, 'UTC')
    FROM (SELECT arrayJoin(arrayZip({models:Array(String)}, {times_ns:Array(Int64)})) AS named)
)
  AND request_id IN {ids:Array(String)}
ORDER BY indexOf({ids:Array(String)}, request_id)
LIMIT 1 BY request_id
