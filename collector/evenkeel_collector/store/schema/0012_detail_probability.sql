-- The probability with which a row's detail was kept, on the row, so that estimates can be weighted.

ALTER TABLE requests ADD COLUMN IF NOT EXISTS detail_probability Float64 DEFAULT 1;

ALTER TABLE spans_to_requests MODIFY QUERY
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    nullIf(SpanAttributes['gen_ai.operation.name'], '') AS operation,
    SpanAttributes['evenkeel.request.id'] AS request_id,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['gen_ai.conversation.id'], '') AS session_id,
    SpanAttributes['gen_ai.request.model'] AS model,
    nullIf(SpanAttributes['evenkeel.slo_class'], '') AS slo_class,
    nullIf(SpanAttributes['evenkeel.route'], '') AS route,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    SpanAttributes['evenkeel.status'] AS status,
    nullIf(JSONExtractString(SpanAttributes['gen_ai.response.finish_reasons'], 1), '')
        AS finish_reason,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    toUInt32OrNull(SpanAttributes['gen_ai.request.max_tokens']) AS max_tokens,
    toFloat64OrNull(SpanAttributes['gen_ai.request.temperature']) AS temperature,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.input_tokens']) AS input_tokens,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.output_tokens']) AS output_tokens,
    toUInt32OrNull(SpanAttributes['gen_ai.usage.cache_read.input_tokens']) AS cached_tokens,
    toUInt32OrNull(SpanAttributes['evenkeel.wasted_tokens']) AS wasted_tokens,
    toFloat64OrNull(SpanAttributes['evenkeel.queue_s']) AS queue_s,
    toFloat64OrNull(SpanAttributes['evenkeel.prefill_s']) AS prefill_s,
    toFloat64OrNull(SpanAttributes['evenkeel.decode_s']) AS decode_s,
    toFloat64OrNull(SpanAttributes['evenkeel.ttft_s']) AS ttft_s,
    toFloat64OrNull(SpanAttributes['evenkeel.tpot_s']) AS tpot_s,
    toFloat64OrNull(SpanAttributes['evenkeel.itl_p50_s']) AS itl_p50_s,
    toFloat64OrNull(SpanAttributes['evenkeel.itl_p99_s']) AS itl_p99_s,
    toFloat64OrNull(SpanAttributes['evenkeel.stall_s']) AS stall_s,
    toFloat64OrNull(SpanAttributes['evenkeel.e2e_s']) AS e2e_s,
    toUInt32OrNull(SpanAttributes['evenkeel.drafted_tokens']) AS drafted_tokens,
    toUInt32OrNull(SpanAttributes['evenkeel.accepted_tokens']) AS accepted_tokens,
    JSONExtract(SpanAttributes['evenkeel.drafted_by_position'], 'Array(UInt32)') AS drafted_by_position,
    JSONExtract(SpanAttributes['evenkeel.accepted_by_position'], 'Array(UInt32)') AS accepted_by_position,
    nullIf(SpanAttributes['evenkeel.response_cache'], '') AS response_cache,
    JSONExtract(SpanAttributes['evenkeel.emission_time_s'], 'Array(Float64)') AS emission_time_s,
    JSONExtract(SpanAttributes['evenkeel.emission_tokens'], 'Array(UInt32)') AS emission_tokens,
    mapApply((cause, seconds) -> (substring(cause, 17), toFloat64OrZero(seconds)),
        mapFilter((key, _) -> startsWith(key, 'evenkeel.ledger.'), SpanAttributes)) AS ledger,
    coalesce(toFloat64OrNull(SpanAttributes['evenkeel.sample_weight']), 1) AS sample_weight,
    mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_time_clamped,
    coalesce(toFloat64OrNull(SpanAttributes['evenkeel.detail_probability']), 1) AS detail_probability
FROM spans
WHERE SpanAttributes['evenkeel.status'] != '';
