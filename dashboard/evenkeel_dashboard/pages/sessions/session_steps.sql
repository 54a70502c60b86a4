-- The requests, tool calls and agents of one session, in order.
SELECT
    kind, start, end, toUnixTimestamp64Nano(start) AS start_ns, name, status, service, trace_id,
    span_id, parent_span_id, request_id, finish_reason, error_type, input_tokens, output_tokens,
    cached_tokens, queue_s, prefill_s, decode_s, recompute_s, prefix_evicted_s, cost
FROM session_turns(session_id = {session_id:String}, tenant = {tenant:String})
ORDER BY start, span_id
LIMIT {limit:UInt32}
