-- Tenants may use the same ids: a record of one says nothing of another's, and no tenant's spans join another's
-- records (calls.py).
ALTER TABLE span_parents ADD COLUMN IF NOT EXISTS tenant LowCardinality(String) CODEC(ZSTD(1));

-- When the span began by its own clock, which may be hours from that of another record of its call; 1970 in rows
-- of earlier versions.
ALTER TABLE span_parents ADD COLUMN IF NOT EXISTS time DateTime('UTC') CODEC(Delta, ZSTD(1));

-- NULL: written by an earlier version, for every tenant.
ALTER TABLE settled_requests ADD COLUMN IF NOT EXISTS tenant Nullable(String) CODEC(ZSTD(1));

ALTER TABLE spans_to_span_parents MODIFY QUERY
SELECT TraceId AS trace_id, SpanId AS span_id, ParentSpanId AS parent_span_id,
    if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
        ResourceAttributes['evenkeel.tenant']) AS tenant,
    toDateTime(Timestamp, 'UTC') AS time
FROM spans
WHERE ParentSpanId != '' AND NOT startsWith(SpanName, 'evenkeel.');
