-- LLM requests that others trace: vLLM's own span, OpenInference, OpenLLMetry, and plain OpenTelemetry
-- GenAI clients. A second view into requests: our own spans keep theirs, which asks for one attribute.
--
-- Views that rarely match stand behind a filter (docs/decisions/0175): the engine analyses a view's query
-- anew at each insert, but not if no row reaches the view. What few senders send goes on through tables
-- that keep nothing, with the columns that the views behind them read.

CREATE TABLE IF NOT EXISTS spans_of_others (
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    SpanName LowCardinality(String),
    SpanKind LowCardinality(String),
    ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String),
    Duration UInt64,
    StatusCode LowCardinality(String),
    Events Nested (
        Timestamp DateTime64(9),
        Name LowCardinality(String),
        Attributes Map(LowCardinality(String), String)
    )
)
ENGINE = Null;

-- Attributes of which each of the others' request spans has one.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_spans_of_others TO spans_of_others AS
SELECT Timestamp, TraceId, SpanId, SpanName, SpanKind, ServiceName, ResourceAttributes, SpanAttributes,
    Duration, StatusCode, Events.Timestamp, Events.Name, Events.Attributes
FROM spans
WHERE NOT startsWith(SpanName, 'evenkeel.') AND SpanAttributes['evenkeel.status'] = ''
    AND hasAny(mapKeys(SpanAttributes), ['gen_ai.latency.e2e', 'openinference.span.kind',
        'llm.request.type', 'gen_ai.request.model']);

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
    -- OpenInference: what was asked for, which a failed request has too.
    (name -> JSONExtractString(SpanAttributes['llm.invocation_parameters'], name)) AS invoked,
    (name -> ifNull(toString(JSONExtract(SpanAttributes['llm.invocation_parameters'], name,
        'Nullable(Float64)')), '')) AS invoked_number,
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['max_tokens', 'input_tokens', 'output_tokens', 'cached_tokens', 'temperature', 'queue_s', 'prefill_s',
        'decode_s', 'ttft_s', 'e2e_s', 'sample_weight'] AS names,
    [
        if(first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']) != '',
            first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']),
            invoked_number('max_tokens')),
        first_of(['gen_ai.usage.input_tokens', 'gen_ai.usage.prompt_tokens', 'llm.token_count.prompt']),
        first_of(['gen_ai.usage.output_tokens', 'gen_ai.usage.completion_tokens',
            'llm.token_count.completion']),
        first_of(['gen_ai.usage.cache_read.input_tokens', 'gen_ai.usage.cache_read_input_tokens',
            'llm.token_count.prompt_details.cache_read']),
        if(SpanAttributes['gen_ai.request.temperature'] != '',
            SpanAttributes['gen_ai.request.temperature'], invoked_number('temperature')),
        SpanAttributes['gen_ai.latency.time_in_queue'],
        SpanAttributes['gen_ai.latency.time_in_model_prefill'],
        SpanAttributes['gen_ai.latency.time_in_model_decode'],
        multiIf(who = 'vllm', SpanAttributes['gen_ai.latency.time_to_first_token'],
            is_clamped OR first_chunk < Timestamp, '',
            toString((toUnixTimestamp64Nano(first_chunk) - toUnixTimestamp64Nano(Timestamp)) / 1e9)),
        multiIf(who = 'vllm', SpanAttributes['gen_ai.latency.e2e'], is_clamped, '',
            toString(Duration / 1e9)),
        SpanAttributes['evenkeel.sample_weight']
    ] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1.],
        [4294967295., 100000000., 100000000., 100000000., 100., 1000000., 1000000., 1000000., 1000000.,
            1000000., 1000000.],
        [1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
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
        coalesce(nullIf(first_of(['gen_ai.request.model', 'llm.request.model_name']), ''),
            nullIf(invoked('model'), ''), first_of(['llm.model_name', 'gen_ai.response.model']))) AS model,
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
    accurateCastOrNull(numbers[1], 'UInt32') AS max_tokens,
    numbers[5] AS temperature,
    accurateCastOrNull(numbers[2], 'UInt32') AS input_tokens,
    accurateCastOrNull(numbers[3], 'UInt32') AS output_tokens,
    accurateCastOrNull(numbers[4], 'UInt32') AS cached_tokens,
    numbers[6] AS queue_s,
    numbers[7] AS prefill_s,
    numbers[8] AS decode_s,
    numbers[9] AS ttft_s,
    if(numbers[3] >= 2, numbers[8] / (numbers[3] - 1), NULL) AS tpot_s,
    numbers[10] AS e2e_s,
    coalesce(numbers[11], 1) AS sample_weight,
    is_clamped AS is_time_clamped,
    who AS source,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM spans_of_others
WHERE SpanAttributes['evenkeel.status'] = '' AND who != '' AND NOT startsWith(SpanName, 'evenkeel.');
