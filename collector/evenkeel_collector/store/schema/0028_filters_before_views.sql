-- Views that rarely match stand behind a filter (docs/decisions/0175): the engine analyses a view's query
-- anew at each insert, but not where no row reaches the view. What few senders send goes on through
-- tables that keep nothing, with the columns that the views behind them read.

CREATE TABLE IF NOT EXISTS step_spans (
    Timestamp DateTime64(9),
    ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String)
)
ENGINE = Null;

CREATE TABLE IF NOT EXISTS judgement_spans (
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    ParentSpanId String,
    SpanName LowCardinality(String),
    ServiceName LowCardinality(String),
    SpanAttributes Map(LowCardinality(String), String)
)
ENGINE = Null;

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

CREATE TABLE IF NOT EXISTS metric_segments (
    received_unix_nano UInt64,
    metric_groups Array(Tuple(
        resource_attributes Map(String, String),
        points Array(Tuple(
            time_unix_nano UInt64, start_unix_nano UInt64,
            name String, unit String, kind String, temporality String, is_monotonic Bool,
            value Nullable(Float64), count Nullable(UInt64), sum Nullable(Float64),
            min Nullable(Float64), max Nullable(Float64),
            bounds Array(Float64), bucket_counts Array(UInt64),
            attributes Map(String, String)))))
)
ENGINE = Null;

-- The filters come first: until a view below reads from one, it reads from where it did.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_step_spans TO step_spans AS
SELECT Timestamp, ServiceName, ResourceAttributes, SpanAttributes
FROM spans
WHERE SpanName = 'evenkeel.engine.steps';

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_judgement_spans TO judgement_spans AS
SELECT Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, SpanAttributes
FROM spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run', 'evenkeel.evaluation.live',
    'evenkeel.feedback');

-- Attributes of which each of the others' request spans has one.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_spans_of_others TO spans_of_others AS
SELECT Timestamp, TraceId, SpanId, SpanName, SpanKind, ServiceName, ResourceAttributes, SpanAttributes,
    Duration, StatusCode, Events.Timestamp, Events.Name, Events.Attributes
FROM spans
WHERE NOT startsWith(SpanName, 'evenkeel.') AND SpanAttributes['evenkeel.status'] = ''
    AND hasAny(mapKeys(SpanAttributes), ['gen_ai.latency.e2e', 'openinference.span.kind',
        'llm.request.type', 'gen_ai.request.model']);

CREATE MATERIALIZED VIEW IF NOT EXISTS otlp_traces_to_metric_segments TO metric_segments AS
SELECT received_unix_nano, metric_groups
FROM otlp_traces
WHERE notEmpty(metric_groups);

ALTER TABLE spans_to_engine_steps MODIFY QUERY
SELECT
    Timestamp + toIntervalNanosecond(toInt64(start_s * 1e9)) AS time,
    duration_s,
    busy_s,
    longest_s,
    ServiceName AS service,
    instance,
    engine,
    model,
    num_steps,
    num_batched AS batch_size,
    num_running,
    num_waiting,
    num_set_aside,
    held_by,
    prefill_tokens,
    decode_tokens,
    drafted_tokens,
    accepted_tokens,
    emitted_tokens,
    num_preempted,
    blocks_live,
    blocks_resident,
    blocks_total,
    arrayFilter((name, run) -> run = place - 1, names, runs_of_names) AS prefilling_request_id,
    arrayFilter((tokens, run) -> run = place - 1, tokens_of_names, runs_of_names) AS prefilling_tokens
FROM (
    WITH
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(Float64)'))
            AS seconds,
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(UInt32)'))
            AS counts,
        (name -> arrayResize(seconds(name), length(all_start_s))) AS filled_seconds,
        (name -> arrayResize(counts(name), length(all_start_s))) AS filled_counts
    SELECT
        Timestamp,
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        toUInt16OrZero(SpanAttributes['evenkeel.engine.index']) AS engine,
        SpanAttributes['gen_ai.request.model'] AS model,
        seconds('start_s') AS all_start_s,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.held_by'], 'Array(String)'),
            length(all_start_s)) AS all_held_by,
        counts('prefilling_run') AS runs_of_names,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.prefilling_id'], 'Array(String)'),
            length(runs_of_names)) AS names,
        arrayResize(counts('prefilling_tokens'), length(runs_of_names)) AS tokens_of_names,
        filled_seconds('duration_s') AS all_duration_s,
        filled_seconds('busy_s') AS all_busy_s,
        filled_seconds('longest_s') AS all_longest_s,
        filled_counts('num_steps') AS all_num_steps,
        filled_counts('num_batched') AS all_num_batched,
        filled_counts('num_running') AS all_num_running,
        filled_counts('num_waiting') AS all_num_waiting,
        filled_counts('num_set_aside') AS all_num_set_aside,
        filled_counts('prefill_tokens') AS all_prefill_tokens,
        filled_counts('decode_tokens') AS all_decode_tokens,
        filled_counts('drafted_tokens') AS all_drafted_tokens,
        filled_counts('accepted_tokens') AS all_accepted_tokens,
        filled_counts('emitted_tokens') AS all_emitted_tokens,
        filled_counts('num_preempted') AS all_num_preempted,
        filled_counts('blocks_live') AS all_blocks_live,
        filled_counts('blocks_resident') AS all_blocks_resident,
        filled_counts('blocks_total') AS all_blocks_total
    FROM step_spans
)
ARRAY JOIN
    arrayEnumerate(all_start_s) AS place,
    all_start_s AS start_s,
    all_held_by AS held_by,
    all_duration_s AS duration_s,
    all_busy_s AS busy_s,
    all_longest_s AS longest_s,
    all_num_steps AS num_steps,
    all_num_batched AS num_batched,
    all_num_running AS num_running,
    all_num_waiting AS num_waiting,
    all_num_set_aside AS num_set_aside,
    all_prefill_tokens AS prefill_tokens,
    all_decode_tokens AS decode_tokens,
    all_drafted_tokens AS drafted_tokens,
    all_accepted_tokens AS accepted_tokens,
    all_emitted_tokens AS emitted_tokens,
    all_num_preempted AS num_preempted,
    all_blocks_live AS blocks_live,
    all_blocks_resident AS blocks_resident,
    all_blocks_total AS blocks_total;

ALTER TABLE spans_to_eval_results MODIFY QUERY
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_span_id,
    if(SpanName = 'evenkeel.evaluation', 'answer', 'gate') AS kind,
    ServiceName AS service,
    nullIf(SpanAttributes['evenkeel.eval.run_id'], '') AS run_id,
    nullIf(SpanAttributes['evenkeel.eval.dataset'], '') AS dataset,
    nullIf(SpanAttributes['evenkeel.eval.side'], '') AS side,
    nullIf(SpanAttributes['evenkeel.eval.item_id'], '') AS item_id,
    nullIf(SpanAttributes['evenkeel.eval.pair'], '') AS pair,
    JSONExtract(SpanAttributes['evenkeel.eval.tags'], 'Array(String)') AS tags,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    nullIf(SpanAttributes['gen_ai.evaluation.name'], '') AS name,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS explanation,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    toUInt32OrNull(SpanAttributes['evenkeel.eval.output_tokens']) AS output_tokens,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.client_ttft_s']) AS client_ttft_s,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.client_e2e_s']) AS client_e2e_s,
    nullIf(SpanAttributes['evenkeel.eval.gate'], '') AS gate,
    nullIf(SpanAttributes['evenkeel.eval.slice'], '') AS slice,
    nullIf(SpanAttributes['evenkeel.eval.verdict'], '') AS verdict,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.estimate']) AS estimate,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.lower']) AS lower,
    toFloat64OrNull(SpanAttributes['evenkeel.eval.upper']) AS upper,
    toUInt32OrNull(SpanAttributes['evenkeel.eval.num_pairs']) AS num_pairs,
    SpanAttributes AS attributes
FROM judgement_spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run');

ALTER TABLE spans_to_feedback MODIFY QUERY
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS comment,
    nullIf(SpanAttributes['evenkeel.feedback.corrected'], '') AS corrected,
    nullIf(SpanAttributes['evenkeel.feedback.author'], '') AS author,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant
FROM judgement_spans
WHERE SpanName = 'evenkeel.feedback';

ALTER TABLE spans_to_live_evaluations MODIFY QUERY
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    SpanAttributes['evenkeel.live.monitor'] AS monitor,
    SpanAttributes['gen_ai.evaluation.name'] AS scorer,
    SpanAttributes['evenkeel.live.stratum'] AS stratum,
    toFloat64OrZero(SpanAttributes['evenkeel.live.probability']) AS probability,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    SpanAttributes['gen_ai.evaluation.score.label'] AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS reason,
    toFloat64OrNull(SpanAttributes['evenkeel.live.lag_s']) AS lag_s,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version
FROM judgement_spans
WHERE SpanName = 'evenkeel.evaluation.live';

ALTER TABLE spans_of_others_to_requests MODIFY QUERY
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
FROM spans_of_others
WHERE SpanAttributes['evenkeel.status'] = '' AND who != '' AND NOT startsWith(SpanName, 'evenkeel.');

ALTER TABLE otlp_traces_to_engine_state MODIFY QUERY
WITH
    point.time_unix_nano NOT BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_clamped
SELECT
    fromUnixTimestamp64Nano(toInt64(if(is_clamped, received_unix_nano, point.time_unix_nano)), 'UTC')
        AS time,
    if(point.start_unix_nano BETWEEN 1 AND 4102444800000000000,
        fromUnixTimestamp64Nano(toInt64(point.start_unix_nano), 'UTC'), NULL) AS start_time,
    point.name AS name,
    point.kind AS kind,
    point.unit AS unit,
    point.temporality AS temporality,
    point.is_monotonic AS is_monotonic,
    resource_attributes['service.name'] AS service,
    resource_attributes['service.instance.id'] AS instance,
    attributes[arrayFirst(key -> attributes[key] != '',
        ['gen_ai.request.model', 'gen_ai.response.model', 'model_name'])] AS model,
    point.attributes AS attributes,
    resource_attributes,
    point.value AS value,
    point.count AS count,
    point.sum AS sum,
    point.min AS min,
    point.max AS max,
    point.bounds AS bounds,
    point.bucket_counts AS bucket_counts,
    is_clamped AS is_time_clamped
FROM (
    SELECT received_unix_nano, metric_group.resource_attributes AS resource_attributes,
        arrayJoin(metric_group.points) AS point
    FROM (
        SELECT received_unix_nano, arrayJoin(metric_groups) AS metric_group FROM metric_segments
    )
);
