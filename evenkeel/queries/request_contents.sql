-- What was asked and answered in some traces of a window, where it is stored; empty where it is not.
SELECT
    TraceId AS trace_id, SpanId AS span_id,
    SpanAttributes['gen_ai.input.messages'] AS input_messages,
    SpanAttributes['gen_ai.output.messages'] AS output_messages
FROM evenkeel.spans
WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64})
  AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64})
  AND TraceId IN {trace_ids:Array(String)}
  AND SpanAttributes['gen_ai.output.messages'] != ''
