-- One request by its id or its trace id, the newest if several have it, and the attributes of its span.
WITH found AS
(
    SELECT
        time, trace_id, span_id, request_id, model, tenant, status, response_cache, input_tokens,
        cached_tokens, ttft_s, decode_s, e2e_s, ledger, reasoning_tokens, visible_tokens, visible_ttft_s,
        repeated_share, tool_calls_failed, count() OVER () AS num_found
    FROM evenkeel.requests
    WHERE request_id = {id:String} OR trace_id = {id:String}
    ORDER BY time DESC
    LIMIT 1
)
SELECT found.*, formatDateTime(found.time, '%Y-%m-%dT%H:%i:%S.%fZ', 'UTC') AS arrival, attributes
FROM found
GLOBAL LEFT JOIN
(
    SELECT SpanId AS id_of_span, SpanAttributes AS attributes,
        if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
            ResourceAttributes['evenkeel.tenant']) AS whose
    FROM evenkeel.spans
    WHERE TraceId GLOBAL IN (SELECT trace_id FROM found)
) AS own ON own.id_of_span = found.span_id
-- Another tenant's span may have the same ids.
ORDER BY own.whose = ifNull(found.tenant, '') DESC
LIMIT 1
