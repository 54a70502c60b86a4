-- Production requests with their questions and answers, newest first, to be asked again.
SELECT
    r.trace_id AS trace_id, r.max_tokens AS max_tokens, r.temperature AS temperature,
    r.route AS route, r.tenant AS tenant,
    s.input_messages AS input_messages, s.output_messages AS output_messages
FROM evenkeel.requests AS r
GLOBAL INNER JOIN (
    SELECT
        TraceId, SpanId,
        SpanAttributes['gen_ai.input.messages'] AS input_messages,
        SpanAttributes['gen_ai.output.messages'] AS output_messages
    FROM evenkeel.spans
    WHERE Timestamp >= fromUnixTimestamp64Nano({since_ns:Int64})
      AND SpanAttributes['gen_ai.input.messages'] != ''
      AND SpanAttributes['gen_ai.output.messages'] != ''
) AS s ON s.TraceId = r.trace_id AND s.SpanId = r.span_id
WHERE r.time >= fromUnixTimestamp64Nano({since_ns:Int64})
  AND r.status = 'ok'
  AND ifNull(r.route, '') != 'eval'
ORDER BY r.time DESC
LIMIT {limit:UInt32}
