-- A call of an MCP tool is `execute_tool` at the client and again at the server: one call.
ALTER TABLE spans_to_session_spans MODIFY QUERY
SELECT Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ResourceAttributes, SpanAttributes,
    Duration, StatusCode
FROM spans
WHERE NOT startsWith(SpanName, 'evenkeel.') AND SpanAttributes['evenkeel.status'] = ''
    AND NOT (SpanAttributes['gen_ai.operation.name'] = 'execute_tool' AND SpanKind = 'Server')
    AND ((SpanAttributes['gen_ai.operation.name'] IN ('execute_tool', 'invoke_agent')
            AND SpanAttributes['traceloop.span.kind'] != 'workflow')
        OR SpanAttributes['openinference.span.kind'] IN ('TOOL', 'AGENT')
        OR SpanAttributes['traceloop.span.kind'] IN ('tool', 'agent')
        OR SpanAttributes['langfuse.observation.type'] IN ('tool', 'agent'));
