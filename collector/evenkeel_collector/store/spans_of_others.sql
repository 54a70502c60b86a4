-- The query of the view spans_to_spans_of_others: spans that may be requests which others traced, by
-- attributes of which each has one. views_of_others.py fills in those of evenkeel/engines/*.toml.
SELECT Timestamp, TraceId, SpanId, SpanName, SpanKind, ServiceName, ScopeName, ResourceAttributes,
    SpanAttributes, Duration, StatusCode, Events.Timestamp, Events.Name, Events.Attributes
FROM spans
WHERE NOT startsWith(SpanName, 'evenkeel.') AND SpanAttributes['evenkeel.status'] = ''
    AND hasAny(mapKeys(SpanAttributes), [$attributes])
