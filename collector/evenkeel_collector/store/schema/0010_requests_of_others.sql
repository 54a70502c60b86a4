-- LLM requests that others trace: vLLM's own span, OpenInference, OpenLLMetry, and plain OpenTelemetry
-- GenAI clients. A second view into requests: our own spans keep theirs, which asks for one attribute.

ALTER TABLE requests ADD COLUMN IF NOT EXISTS source LowCardinality(String) DEFAULT 'evenkeel';

-- Durations by clients include the network; a span whose times were replaced has none.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_of_others_to_requests TO requests AS
WITH
    multiIf(
        SpanName = 'llm_request' AND SpanAttributes['gen_ai.latency.e2e'] != '', 'vllm',
        SpanAttributes['openinference.span.kind'] = 'LLM', 'openinference',
        SpanAttributes['llm.request.type'] IN ('chat', 'completion'), 'openllmetry',
        SpanKind = 'Client' AND SpanAttributes['gen_ai.request.model'] != ''
            AND SpanAttributes['gen_ai.operation.name'] IN ('chat', 'text_completion', 'generate_content'),
            'gen_ai',
        '') AS who,
    (keys -> SpanAttributes[arrayFirst(key -> SpanAttributes[key] != '', keys)]) AS first_of,
    mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_clamped,
    arrayFirst((t, name) -> name IN ('First Token Stream Event', 'llm.content.completion.chunk',
        'gen_ai.content.completion.chunk'), Events.Timestamp, Events.Name) AS first_chunk,
    toUInt32OrNull(first_of(['gen_ai.usage.output_tokens', 'gen_ai.usage.completion_tokens',
        'llm.token_count.completion'])) AS num_output,
    toFloat64OrNull(SpanAttributes['gen_ai.latency.time_in_model_decode']) AS decode
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    ifNull(nullIf(first_of(['gen_ai.operation.name', 'llm.request.type']), ''), 'chat') AS operation,
    first_of(['gen_ai.request.id', 'gen_ai.response.id', 'llm.response.id']) AS request_id,
    nullIf(if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
        ResourceAttributes['evenkeel.tenant']), '') AS tenant,
    nullIf(first_of(['gen_ai.conversation.id', 'session.id',
        'traceloop.association.properties.session_id']), '') AS session_id,
    if(who = 'vllm',
        ifNull(nullIf(first_of(['gen_ai.request.model', 'gen_ai.response.model']), ''), ServiceName),
        first_of(['gen_ai.request.model', 'llm.request.model_name', 'llm.model_name',
            'gen_ai.response.model'])) AS model,
    nullIf(SpanAttributes['evenkeel.slo_class'], '') AS slo_class,
    nullIf(SpanAttributes['evenkeel.route'], '') AS route,
    nullIf(first_of(['evenkeel.prompt.name', 'gen_ai.prompt.name', 'traceloop.prompt.key',
        'prompt.id']), '') AS prompt_name,
    nullIf(first_of(['evenkeel.prompt.version', 'gen_ai.prompt.version', 'traceloop.prompt.version',
        'llm.prompt_template.version']), '') AS prompt_version,
    if(StatusCode = 'Error', 'error', 'ok') AS status,
    nullIf(if(SpanAttributes['gen_ai.response.finish_reasons'] != '',
        JSONExtractString(SpanAttributes['gen_ai.response.finish_reasons'], 1),
        first_of(['gen_ai.response.finish_reason', 'llm.response.finish_reason',
            'gen_ai.completion.0.finish_reason', 'llm.finish_reason'])), '') AS finish_reason,
    nullIf(if(SpanAttributes['error.type'] != '', SpanAttributes['error.type'],
        arrayFirst((a, name) -> name = 'exception', Events.Attributes, Events.Name)['exception.type']),
        '') AS error_type,
    toUInt32OrNull(first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']))
        AS max_tokens,
    ifNull(toFloat64OrNull(SpanAttributes['gen_ai.request.temperature']),
        JSONExtract(SpanAttributes['llm.invocation_parameters'], 'temperature', 'Nullable(Float64)'))
        AS temperature,
    toUInt32OrNull(first_of(['gen_ai.usage.input_tokens', 'gen_ai.usage.prompt_tokens',
        'llm.token_count.prompt'])) AS input_tokens,
    num_output AS output_tokens,
    toUInt32OrNull(first_of(['gen_ai.usage.cache_read.input_tokens',
        'gen_ai.usage.cache_read_input_tokens', 'llm.token_count.prompt_details.cache_read']))
        AS cached_tokens,
    toFloat64OrNull(SpanAttributes['gen_ai.latency.time_in_queue']) AS queue_s,
    toFloat64OrNull(SpanAttributes['gen_ai.latency.time_in_model_prefill']) AS prefill_s,
    decode AS decode_s,
    multiIf(who = 'vllm', toFloat64OrNull(SpanAttributes['gen_ai.latency.time_to_first_token']),
        is_clamped OR first_chunk < Timestamp, NULL,
        (toUnixTimestamp64Nano(first_chunk) - toUnixTimestamp64Nano(Timestamp)) / 1e9) AS ttft_s,
    if(num_output >= 2, decode / (num_output - 1), NULL) AS tpot_s,
    multiIf(who = 'vllm', toFloat64OrNull(SpanAttributes['gen_ai.latency.e2e']),
        is_clamped, NULL, Duration / 1e9) AS e2e_s,
    coalesce(toFloat64OrNull(SpanAttributes['evenkeel.sample_weight']), 1) AS sample_weight,
    is_clamped AS is_time_clamped,
    who AS source
FROM spans
WHERE SpanAttributes['evenkeel.status'] = '' AND who != '' AND NOT startsWith(SpanName, 'evenkeel.');
