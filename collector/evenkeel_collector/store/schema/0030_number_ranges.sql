-- One rule for every number (collector/number_ranges.py, docs/data-model.md): finite and within its
-- column's range, else absent, named in the row's refused_numbers, and counted. It holds in the views,
-- so for every sender, for segments of an older version, and over the text that `spans` keeps as sent.

ALTER TABLE requests ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

ALTER TABLE eval_results ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

ALTER TABLE feedback ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

ALTER TABLE live_evaluations ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

ALTER TABLE engine_steps ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

ALTER TABLE engine_state ADD COLUMN IF NOT EXISTS refused_numbers Map(LowCardinality(String),
    LowCardinality(String));

-- Refused numbers of all rows since the store was made; what `/metrics` shows.
CREATE TABLE IF NOT EXISTS refused_numbers (
    source LowCardinality(String),
    field LowCardinality(String),
    reason LowCardinality(String),
    num UInt64
)
ENGINE = SummingMergeTree
ORDER BY (source, field, reason)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_refused_numbers TO refused_numbers AS
SELECT 'requests' AS source, field, reason, count() AS num
FROM requests
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS eval_results_to_refused_numbers TO refused_numbers AS
SELECT 'eval_results' AS source, field, reason, count() AS num
FROM eval_results
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS feedback_to_refused_numbers TO refused_numbers AS
SELECT 'feedback' AS source, field, reason, count() AS num
FROM feedback
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS live_evaluations_to_refused_numbers TO refused_numbers AS
SELECT 'live_evaluations' AS source, field, reason, count() AS num
FROM live_evaluations
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_steps_to_refused_numbers TO refused_numbers AS
SELECT 'engine_steps' AS source, field, reason, count() AS num
FROM engine_steps
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_state_to_refused_numbers TO refused_numbers AS
SELECT 'engine_state' AS source, field, reason, count() AS num
FROM engine_state
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

ALTER TABLE spans_to_requests MODIFY QUERY
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['max_tokens', 'input_tokens', 'output_tokens', 'cached_tokens', 'wasted_tokens', 'drafted_tokens',
        'accepted_tokens', 'http_status', 'temperature', 'queue_s', 'prefill_s', 'decode_s', 'ttft_s',
        'tpot_s', 'itl_p50_s', 'itl_p99_s', 'stall_s', 'e2e_s', 'sample_weight', 'detail_probability'] AS
            names,
    [SpanAttributes['gen_ai.request.max_tokens'], SpanAttributes['gen_ai.usage.input_tokens'],
        SpanAttributes['gen_ai.usage.output_tokens'],
        SpanAttributes['gen_ai.usage.cache_read.input_tokens'], SpanAttributes['evenkeel.wasted_tokens'],
        SpanAttributes['evenkeel.drafted_tokens'], SpanAttributes['evenkeel.accepted_tokens'],
        SpanAttributes['http.response.status_code'], SpanAttributes['gen_ai.request.temperature'],
        SpanAttributes['evenkeel.queue_s'], SpanAttributes['evenkeel.prefill_s'],
        SpanAttributes['evenkeel.decode_s'], SpanAttributes['evenkeel.ttft_s'],
        SpanAttributes['evenkeel.tpot_s'], SpanAttributes['evenkeel.itl_p50_s'],
        SpanAttributes['evenkeel.itl_p99_s'], SpanAttributes['evenkeel.stall_s'],
        SpanAttributes['evenkeel.e2e_s'], SpanAttributes['evenkeel.sample_weight'],
        SpanAttributes['evenkeel.detail_probability']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [0., 0., 0., 0., 0., 0., 0., 100., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1., 0.],
        [4294967295., 100000000., 100000000., 100000000., 100000000., 100000000., 100000000., 599., 100.,
            1000000.,
        1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1.],
        [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused,
    ['drafted_by_position', 'accepted_by_position', 'emission_time_s', 'emission_tokens'] AS list_names,
    [SpanAttributes['evenkeel.drafted_by_position'], SpanAttributes['evenkeel.accepted_by_position'],
        SpanAttributes['evenkeel.emission_time_s'], SpanAttributes['evenkeel.emission_tokens']] AS list_texts,
    arrayMap(text -> JSONExtract(text, 'Array(Nullable(Float64))'), list_texts) AS said_lists,
    arrayMap((list, low, high, is_whole) -> if(
            arrayAll(x -> ifNull(x BETWEEN low AND high AND x = if(is_whole, floor(x), x), 0), list),
            list, []),
        said_lists, [0., 0., 0., 0.], [100000000., 100000000., 1000000., 100000000.], [1, 1, 0, 1]) AS
            lists_in_range,
    -- A series is two lists of one length.
    arrayMap((list, place) -> if(place < 3 OR length(lists_in_range[3]) = length(lists_in_range[4]),
        list, []), lists_in_range, [1, 2, 3, 4]) AS lists,
    arrayFilter(x -> x.1 != '', arrayMap((name, text, said, in_range, list) -> if(
            text IN ('', '[]') OR notEmpty(list), ('', ''),
            (name, multiIf(empty(said), 'not_a_number', empty(in_range), 'out_of_range', 'lengths_differ'))),
        list_names, list_texts, said_lists, lists_in_range, lists)) AS refused_lists,
    mapFilter((key, _) -> startsWith(key, 'evenkeel.ledger.'), SpanAttributes) AS ledger_texts,
    mapFilter((_, text) -> NOT ifNull(toFloat64OrNull(text) BETWEEN 0. AND 1000000., 0),
        ledger_texts) AS refused_ledger
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
    accurateCastOrNull(numbers[8], 'UInt16') AS http_status,
    accurateCastOrNull(numbers[1], 'UInt32') AS max_tokens,
    numbers[9] AS temperature,
    accurateCastOrNull(numbers[2], 'UInt32') AS input_tokens,
    accurateCastOrNull(numbers[3], 'UInt32') AS output_tokens,
    accurateCastOrNull(numbers[4], 'UInt32') AS cached_tokens,
    accurateCastOrNull(numbers[5], 'UInt32') AS wasted_tokens,
    numbers[10] AS queue_s,
    numbers[11] AS prefill_s,
    numbers[12] AS decode_s,
    numbers[13] AS ttft_s,
    numbers[14] AS tpot_s,
    numbers[15] AS itl_p50_s,
    numbers[16] AS itl_p99_s,
    numbers[17] AS stall_s,
    numbers[18] AS e2e_s,
    accurateCastOrNull(numbers[6], 'UInt32') AS drafted_tokens,
    accurateCastOrNull(numbers[7], 'UInt32') AS accepted_tokens,
    lists[1] AS drafted_by_position,
    lists[2] AS accepted_by_position,
    nullIf(SpanAttributes['evenkeel.response_cache'], '') AS response_cache,
    lists[3] AS emission_time_s,
    lists[4] AS emission_tokens,
    mapApply((cause, seconds) -> (substring(cause, 17), toFloat64OrZero(seconds)),
        mapFilter((cause, _) -> NOT mapContains(refused_ledger, cause), ledger_texts)) AS ledger,
    coalesce(numbers[19], 1) AS sample_weight,
    mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_time_clamped,
    coalesce(numbers[20], 1) AS detail_probability,
    CAST(arrayConcat(refused, refused_lists, arraySlice(arrayMap(text -> ('ledger', reason_of(text)),
        mapValues(refused_ledger)), 1, 1)), 'Map(LowCardinality(String), LowCardinality(String))') AS
            refused_numbers
FROM spans
WHERE SpanAttributes['evenkeel.status'] != '';

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
    -- OpenInference: what was asked for, which a failed request has too.
    (name -> JSONExtractString(SpanAttributes['llm.invocation_parameters'], name)) AS invoked,
    (name -> ifNull(toString(JSONExtract(SpanAttributes['llm.invocation_parameters'], name,
        'Nullable(Float64)')), '')) AS invoked_number,
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['max_tokens', 'input_tokens', 'output_tokens', 'cached_tokens', 'temperature', 'queue_s', 'prefill_s',
        'decode_s', 'ttft_s', 'e2e_s', 'sample_weight'] AS names,
    [if(first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']) != '',
        first_of(['gen_ai.request.max_tokens', 'gen_ai.request.max_completion_tokens']),
        invoked_number('max_tokens')), first_of(['gen_ai.usage.input_tokens', 'gen_ai.usage.prompt_tokens',
        'llm.token_count.prompt']), first_of(['gen_ai.usage.output_tokens',
        'gen_ai.usage.completion_tokens', 'llm.token_count.completion']),
        first_of(['gen_ai.usage.cache_read.input_tokens', 'gen_ai.usage.cache_read_input_tokens',
        'llm.token_count.prompt_details.cache_read']), if(SpanAttributes['gen_ai.request.temperature'] !=
        '', SpanAttributes['gen_ai.request.temperature'], invoked_number('temperature')),
        SpanAttributes['gen_ai.latency.time_in_queue'],
        SpanAttributes['gen_ai.latency.time_in_model_prefill'],
        SpanAttributes['gen_ai.latency.time_in_model_decode'], multiIf(who = 'vllm',
        SpanAttributes['gen_ai.latency.time_to_first_token'], is_clamped OR first_chunk < Timestamp, '',
        toString((toUnixTimestamp64Nano(first_chunk) - toUnixTimestamp64Nano(Timestamp)) / 1e9)),
        multiIf(who = 'vllm', SpanAttributes['gen_ai.latency.e2e'], is_clamped, '', toString(Duration /
        1e9)), SpanAttributes['evenkeel.sample_weight']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1.],
        [4294967295., 100000000., 100000000., 100000000., 100., 1000000., 1000000., 1000000., 1000000.,
            1000000.,
        1000000.],
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

ALTER TABLE spans_to_eval_results MODIFY QUERY
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['score', 'output_tokens', 'client_ttft_s', 'client_e2e_s', 'estimate', 'lower', 'upper', 'num_pairs']
        AS names,
    [SpanAttributes['gen_ai.evaluation.score.value'], SpanAttributes['evenkeel.eval.output_tokens'],
        SpanAttributes['evenkeel.eval.client_ttft_s'], SpanAttributes['evenkeel.eval.client_e2e_s'],
        SpanAttributes['evenkeel.eval.estimate'], SpanAttributes['evenkeel.eval.lower'],
        SpanAttributes['evenkeel.eval.upper'], SpanAttributes['evenkeel.eval.num_pairs']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [-1000000000., 0., 0., 0., -1000000000., -1000000000., -1000000000., 0.],
        [1000000000., 100000000., 1000000., 1000000., 1000000000., 1000000000., 1000000000., 4294967295.],
        [0, 1, 0, 0, 0, 0, 0, 1]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
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
    numbers[1] AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS explanation,
    nullIf(SpanAttributes['error.type'], '') AS error_type,
    accurateCastOrNull(numbers[2], 'UInt32') AS output_tokens,
    numbers[3] AS client_ttft_s,
    numbers[4] AS client_e2e_s,
    nullIf(SpanAttributes['evenkeel.eval.gate'], '') AS gate,
    nullIf(SpanAttributes['evenkeel.eval.slice'], '') AS slice,
    nullIf(SpanAttributes['evenkeel.eval.verdict'], '') AS verdict,
    numbers[5] AS estimate,
    numbers[6] AS lower,
    numbers[7] AS upper,
    accurateCastOrNull(numbers[8], 'UInt32') AS num_pairs,
    SpanAttributes AS attributes,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run');

ALTER TABLE spans_to_feedback MODIFY QUERY
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['score'] AS names,
    [SpanAttributes['gen_ai.evaluation.score.value']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [0.],
        [1.],
        [0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    numbers[1] AS score,
    nullIf(SpanAttributes['gen_ai.evaluation.score.label'], '') AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS comment,
    nullIf(SpanAttributes['evenkeel.feedback.corrected'], '') AS corrected,
    nullIf(SpanAttributes['evenkeel.feedback.author'], '') AS author,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName = 'evenkeel.feedback';

ALTER TABLE spans_to_live_evaluations MODIFY QUERY
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    ['probability', 'score', 'lag_s'] AS names,
    [SpanAttributes['evenkeel.live.probability'], SpanAttributes['gen_ai.evaluation.score.value'],
        SpanAttributes['evenkeel.live.lag_s']] AS texts,
    arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
            AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
            toFloat64OrNull(text), NULL),
        texts,
        [1e-06, 0., 0.],
        [1., 1., 1000000.],
        [0, 0, 0]) AS numbers,
    arrayMap((name, text) -> (name, reason_of(text)),
        arrayFilter((name, text, number) -> text != '' AND isNull(number), names, texts, numbers),
        arrayFilter((text, number) -> text != '' AND isNull(number), texts, numbers)) AS refused
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS request_span_id,
    SpanAttributes['evenkeel.live.monitor'] AS monitor,
    SpanAttributes['gen_ai.evaluation.name'] AS scorer,
    SpanAttributes['evenkeel.live.stratum'] AS stratum,
    coalesce(numbers[1], 0) AS probability,
    numbers[2] AS score,
    SpanAttributes['gen_ai.evaluation.score.label'] AS label,
    nullIf(SpanAttributes['gen_ai.evaluation.explanation'], '') AS reason,
    numbers[3] AS lag_s,
    nullIf(SpanAttributes['gen_ai.request.model'], '') AS model,
    nullIf(SpanAttributes['evenkeel.tenant'], '') AS tenant,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName = 'evenkeel.evaluation.live';

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
    arrayFilter((tokens, run) -> run = place - 1, tokens_of_names, runs_of_names) AS prefilling_tokens,
    refused_numbers
FROM (
    WITH
        ['start_s', 'duration_s', 'busy_s', 'longest_s', 'num_steps', 'num_batched', 'num_running',
            'num_waiting',
            'num_set_aside', 'prefill_tokens', 'decode_tokens', 'drafted_tokens', 'accepted_tokens',
            'emitted_tokens', 'num_preempted', 'blocks_live', 'blocks_resident', 'blocks_total'] AS
                names_of_lists,
        [SpanAttributes['evenkeel.steps.start_s'], SpanAttributes['evenkeel.steps.duration_s'],
            SpanAttributes['evenkeel.steps.busy_s'], SpanAttributes['evenkeel.steps.longest_s'],
            SpanAttributes['evenkeel.steps.num_steps'], SpanAttributes['evenkeel.steps.num_batched'],
            SpanAttributes['evenkeel.steps.num_running'], SpanAttributes['evenkeel.steps.num_waiting'],
            SpanAttributes['evenkeel.steps.num_set_aside'], SpanAttributes['evenkeel.steps.prefill_tokens'],
            SpanAttributes['evenkeel.steps.decode_tokens'], SpanAttributes['evenkeel.steps.drafted_tokens'],
            SpanAttributes['evenkeel.steps.accepted_tokens'],
            SpanAttributes['evenkeel.steps.emitted_tokens'], SpanAttributes['evenkeel.steps.num_preempted'],
            SpanAttributes['evenkeel.steps.blocks_live'], SpanAttributes['evenkeel.steps.blocks_resident'],
            SpanAttributes['evenkeel.steps.blocks_total']] AS texts,
        arrayMap(text -> JSONExtract(text, 'Array(Nullable(Float64))'), texts) AS said,
        arrayMap((list, low, high, is_whole) -> arrayMap(
                x -> if(x BETWEEN low AND high AND x = if(is_whole, floor(x), x), x, NULL), list),
            said,
            [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],
            [3600., 1000000., 1000000., 1000000., 4294967295., 4294967295., 4294967295., 4294967295.,
                4294967295.,
            4294967295., 4294967295., 4294967295., 4294967295., 4294967295., 4294967295., 4294967295.,
            4294967295., 4294967295.],
            [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]) AS in_range,
        arrayMap(list -> arrayResize(arrayMap(x -> ifNull(x, 0.), list), length(said[1])), in_range) AS lists,
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(UInt32)'))
            AS counts
    SELECT
        Timestamp,
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        toUInt16OrZero(SpanAttributes['evenkeel.engine.index']) AS engine,
        SpanAttributes['gen_ai.request.model'] AS model,
        lists[1] AS all_start_s,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.held_by'], 'Array(String)'),
            length(all_start_s)) AS all_held_by,
        counts('prefilling_run') AS runs_of_names,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.prefilling_id'], 'Array(String)'),
            length(runs_of_names)) AS names,
        arrayResize(counts('prefilling_tokens'), length(runs_of_names)) AS tokens_of_names,
        lists[2] AS all_duration_s,
        lists[3] AS all_busy_s,
        lists[4] AS all_longest_s,
        lists[5] AS all_num_steps,
        lists[6] AS all_num_batched,
        lists[7] AS all_num_running,
        lists[8] AS all_num_waiting,
        lists[9] AS all_num_set_aside,
        lists[10] AS all_prefill_tokens,
        lists[11] AS all_decode_tokens,
        lists[12] AS all_drafted_tokens,
        lists[13] AS all_accepted_tokens,
        lists[14] AS all_emitted_tokens,
        lists[15] AS all_num_preempted,
        lists[16] AS all_blocks_live,
        lists[17] AS all_blocks_resident,
        lists[18] AS all_blocks_total,
        CAST(arrayFilter(refused -> refused.1 != '', arrayMap((name, text, list) -> multiIf(
            text IN ('', '[]'), ('', ''),
            empty(list), (name, 'not_a_number'),
            has(list, NULL), (name, 'out_of_range'), ('', '')), names_of_lists, texts, in_range)),
                'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
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

ALTER TABLE otlp_traces_to_engine_state MODIFY QUERY
WITH
    point.time_unix_nano NOT BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_clamped,
    [point.value, point.sum, point.min, point.max] AS said,
    arrayMap(x -> if(x BETWEEN -1e30 AND 1e30, x, NULL), said) AS numbers,
    if(point.count <= 1000000000000000, point.count, NULL) AS count_in_range,
    arrayAll(x -> isFinite(x), point.bounds) AND arraySort(point.bounds) = point.bounds
        AS are_bounds_kept,
    length(point.bucket_counts) = length(point.bounds) + 1 AS are_as_many,
    arrayAll(x -> x <= 1000000000000000, point.bucket_counts) AS are_counts_kept,
    are_bounds_kept AND are_as_many AND are_counts_kept AS are_buckets_kept
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
    numbers[1] AS value,
    count_in_range AS count,
    numbers[2] AS sum,
    numbers[3] AS min,
    numbers[4] AS max,
    if(are_buckets_kept, point.bounds, []) AS bounds,
    if(are_buckets_kept, point.bucket_counts, []) AS bucket_counts,
    is_clamped AS is_time_clamped,
    CAST(arrayConcat(
        arrayMap((name, x) -> (name, if(isFinite(x), 'out_of_range', 'not_finite')),
            arrayFilter((name, x, number) -> isNotNull(x) AND isNull(number),
                ['value', 'sum', 'min', 'max'], said, numbers),
            arrayFilter((x, number) -> isNotNull(x) AND isNull(number), said, numbers)),
        if(isNotNull(point.count) AND isNull(count_in_range), [('count', 'out_of_range')], []),
        multiIf(are_buckets_kept OR empty(point.bucket_counts), [],
            NOT are_bounds_kept, [('bounds', if(arrayAll(x -> isFinite(x), point.bounds), 'out_of_range',
                'not_finite'))],
            NOT are_counts_kept, [('bucket_counts', 'out_of_range')],
            [('bucket_counts', 'lengths_differ')])), 'Map(LowCardinality(String), LowCardinality(String))')
                AS refused_numbers
FROM (
    SELECT received_unix_nano, metric_group.resource_attributes AS resource_attributes,
        arrayJoin(metric_group.points) AS point
    FROM (
        SELECT received_unix_nano, arrayJoin(metric_groups) AS metric_group FROM metric_segments
    )
);

-- Rows of before: what the rule refuses goes from them, too. Only parts that hold such a row are written
-- again. Their spans keep what was sent.
ALTER TABLE requests UPDATE
    max_tokens = if(max_tokens BETWEEN 0. AND 4294967295., max_tokens, NULL),
    input_tokens = if(input_tokens BETWEEN 0. AND 100000000., input_tokens, NULL),
    output_tokens = if(output_tokens BETWEEN 0. AND 100000000., output_tokens, NULL),
    cached_tokens = if(cached_tokens BETWEEN 0. AND 100000000., cached_tokens, NULL),
    wasted_tokens = if(wasted_tokens BETWEEN 0. AND 100000000., wasted_tokens, NULL),
    drafted_tokens = if(drafted_tokens BETWEEN 0. AND 100000000., drafted_tokens, NULL),
    accepted_tokens = if(accepted_tokens BETWEEN 0. AND 100000000., accepted_tokens, NULL),
    http_status = if(http_status BETWEEN 100. AND 599., http_status, NULL),
    temperature = if(temperature BETWEEN 0. AND 100., temperature, NULL),
    queue_s = if(queue_s BETWEEN 0. AND 1000000., queue_s, NULL),
    prefill_s = if(prefill_s BETWEEN 0. AND 1000000., prefill_s, NULL),
    decode_s = if(decode_s BETWEEN 0. AND 1000000., decode_s, NULL),
    ttft_s = if(ttft_s BETWEEN 0. AND 1000000., ttft_s, NULL),
    tpot_s = if(tpot_s BETWEEN 0. AND 1000000., tpot_s, NULL),
    itl_p50_s = if(itl_p50_s BETWEEN 0. AND 1000000., itl_p50_s, NULL),
    itl_p99_s = if(itl_p99_s BETWEEN 0. AND 1000000., itl_p99_s, NULL),
    stall_s = if(stall_s BETWEEN 0. AND 1000000., stall_s, NULL),
    e2e_s = if(e2e_s BETWEEN 0. AND 1000000., e2e_s, NULL),
    sample_weight = if(sample_weight BETWEEN 1. AND 1000000., sample_weight, 1),
    detail_probability = if(detail_probability BETWEEN 0. AND 1., detail_probability, 1),
    ledger = mapFilter((_, seconds) -> seconds BETWEEN 0. AND 1000000., ledger)
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(max_tokens), toFloat64(input_tokens), toFloat64(output_tokens), toFloat64(cached_tokens),
        toFloat64(wasted_tokens), toFloat64(drafted_tokens), toFloat64(accepted_tokens),
        toFloat64(http_status), toFloat64(temperature), toFloat64(queue_s), toFloat64(prefill_s),
        toFloat64(decode_s), toFloat64(ttft_s), toFloat64(tpot_s), toFloat64(itl_p50_s),
        toFloat64(itl_p99_s), toFloat64(stall_s), toFloat64(e2e_s), toFloat64(sample_weight),
        toFloat64(detail_probability)],
        [0., 0., 0., 0., 0., 0., 0., 100., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 1., 0.],
        [4294967295., 100000000., 100000000., 100000000., 100000000., 100000000., 100000000., 599., 100.,
            1000000.,
        1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1000000., 1.])
    OR arrayExists(seconds -> NOT seconds BETWEEN 0. AND 1000000., mapValues(ledger))
SETTINGS mutations_sync = 1;

ALTER TABLE eval_results UPDATE
    score = if(score BETWEEN -1000000000. AND 1000000000., score, NULL),
    output_tokens = if(output_tokens BETWEEN 0. AND 100000000., output_tokens, NULL),
    client_ttft_s = if(client_ttft_s BETWEEN 0. AND 1000000., client_ttft_s, NULL),
    client_e2e_s = if(client_e2e_s BETWEEN 0. AND 1000000., client_e2e_s, NULL),
    estimate = if(estimate BETWEEN -1000000000. AND 1000000000., estimate, NULL),
    lower = if(lower BETWEEN -1000000000. AND 1000000000., lower, NULL),
    upper = if(upper BETWEEN -1000000000. AND 1000000000., upper, NULL),
    num_pairs = if(num_pairs BETWEEN 0. AND 4294967295., num_pairs, NULL)
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(score), toFloat64(output_tokens), toFloat64(client_ttft_s), toFloat64(client_e2e_s),
        toFloat64(estimate), toFloat64(lower), toFloat64(upper), toFloat64(num_pairs)],
        [-1000000000., 0., 0., 0., -1000000000., -1000000000., -1000000000., 0.],
        [1000000000., 100000000., 1000000., 1000000., 1000000000., 1000000000., 1000000000., 4294967295.])
SETTINGS mutations_sync = 1;

ALTER TABLE feedback UPDATE
    score = if(score BETWEEN 0. AND 1., score, NULL)
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(score)],
        [0.],
        [1.])
SETTINGS mutations_sync = 1;

ALTER TABLE live_evaluations UPDATE
    probability = if(probability BETWEEN 1e-06 AND 1., probability, 0),
    score = if(score BETWEEN 0. AND 1., score, NULL),
    lag_s = if(lag_s BETWEEN 0. AND 1000000., lag_s, NULL)
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(probability), toFloat64(score), toFloat64(lag_s)],
        [1e-06, 0., 0.],
        [1., 1., 1000000.])
SETTINGS mutations_sync = 1;

ALTER TABLE engine_steps UPDATE
    duration_s = if(duration_s BETWEEN 0. AND 1000000., duration_s, 0),
    busy_s = if(busy_s BETWEEN 0. AND 1000000., busy_s, 0),
    longest_s = if(longest_s BETWEEN 0. AND 1000000., longest_s, 0)
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(duration_s), toFloat64(busy_s), toFloat64(longest_s)],
        [0., 0., 0.],
        [1000000., 1000000., 1000000.])
SETTINGS mutations_sync = 1;

ALTER TABLE engine_state UPDATE
    value = if(value BETWEEN -1e+30 AND 1e+30, value, NULL),
    sum = if(sum BETWEEN -1e+30 AND 1e+30, sum, NULL),
    min = if(min BETWEEN -1e+30 AND 1e+30, min, NULL),
    max = if(max BETWEEN -1e+30 AND 1e+30, max, NULL),
    bucket_counts = if(arrayAll(x -> isFinite(x), bounds), bucket_counts, []),
    bounds = if(arrayAll(x -> isFinite(x), bounds), bounds, [])
WHERE NOT arrayAll((number, low, high) -> ifNull(number BETWEEN low AND high, 1),
        [toFloat64(value), toFloat64(sum), toFloat64(min), toFloat64(max)],
        [-1e+30, -1e+30, -1e+30, -1e+30],
        [1e+30, 1e+30, 1e+30, 1e+30])
    OR NOT arrayAll(x -> isFinite(x), bounds)
SETTINGS mutations_sync = 1;

-- In the rollups a sum that is not finite says nothing, for good; nor do percentiles with an infinity.
ALTER TABLE requests_1m UPDATE
    num_queue = if(isFinite(queue_sum_s), num_queue, 0),
    queue_sum_s = if(isFinite(queue_sum_s), queue_sum_s, 0),
    num_prefill = if(isFinite(prefill_sum_s), num_prefill, 0),
    prefill_sum_s = if(isFinite(prefill_sum_s), prefill_sum_s, 0),
    num_decode = if(isFinite(decode_sum_s), num_decode, 0),
    decode_sum_s = if(isFinite(decode_sum_s), decode_sum_s, 0),
    ttft_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(ttft_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        ttft_s),
    tpot_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(tpot_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        tpot_s),
    itl_p50_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p50_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        itl_p50_s),
    itl_p99_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p99_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        itl_p99_s),
    stall_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(stall_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        stall_s),
    e2e_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(e2e_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        e2e_s),
    queue_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(queue_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        queue_s),
    prefill_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(prefill_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        prefill_s),
    decode_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(decode_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        decode_s)
WHERE NOT isFinite(queue_sum_s + prefill_sum_s + decode_sum_s)
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(ttft_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(tpot_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p50_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p99_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(stall_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(e2e_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(queue_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(prefill_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(decode_s))
SETTINGS mutations_sync = 1;

ALTER TABLE requests_1h UPDATE
    num_queue = if(isFinite(queue_sum_s), num_queue, 0),
    queue_sum_s = if(isFinite(queue_sum_s), queue_sum_s, 0),
    num_prefill = if(isFinite(prefill_sum_s), num_prefill, 0),
    prefill_sum_s = if(isFinite(prefill_sum_s), prefill_sum_s, 0),
    num_decode = if(isFinite(decode_sum_s), num_decode, 0),
    decode_sum_s = if(isFinite(decode_sum_s), decode_sum_s, 0),
    ttft_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(ttft_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        ttft_s),
    tpot_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(tpot_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        tpot_s),
    itl_p50_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p50_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        itl_p50_s),
    itl_p99_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p99_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        itl_p99_s),
    stall_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(stall_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        stall_s),
    e2e_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(e2e_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        e2e_s),
    queue_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(queue_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        queue_s),
    prefill_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(prefill_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        prefill_s),
    decode_s = if(arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(decode_s)),
        initializeAggregation('quantilesTDigestState(0.5, 0.95, 0.99)', CAST(NULL, 'Nullable(Float64)')),
        decode_s)
WHERE NOT isFinite(queue_sum_s + prefill_sum_s + decode_sum_s)
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(ttft_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(tpot_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p50_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(itl_p99_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(stall_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(e2e_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(queue_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(prefill_s))
    OR arrayExists(x -> x < 0 OR x > 1000000, finalizeAggregation(decode_s))
SETTINGS mutations_sync = 1;

-- Verdicts over such rows said nothing.
ALTER TABLE slo_status DELETE WHERE NOT isFinite(good) OR NOT isFinite(total) SETTINGS mutations_sync = 1;

-- As in 0016, but for rows that an older version may still write: a duration that is not finite ends
-- nothing, a weight out of range is 1, and no more tokens are accepted than were drafted.
DROP VIEW IF EXISTS slo_judged;

CREATE VIEW IF NOT EXISTS slo_judged AS
SELECT
    *,
    multiIf(
        unit = 'acceptance', sample_weight * drafted_tokens,
        unit = 'cache_hit', sample_weight * input_tokens,
        sample_weight
    ) AS total,
    multiIf(
        treatment = 'bad', total,
        unit = 'acceptance', sample_weight * (drafted_tokens - least(accepted_tokens, drafted_tokens)),
        unit = 'cache_hit', sample_weight * (input_tokens - least(cached_tokens, input_tokens)),
        is_missed, sample_weight,
        0
    ) AS bad,
    bad <= total * (1 - target) AS is_good
FROM
(
    SELECT
        *,
        slo,
        unit,
        target,
        multiIf(
            status = 'error'
                AND ifNull(http_status BETWEEN 400 AND 499 AND http_status NOT IN (408, 429), 0),
            'excluded',
            status = 'error', error, status = 'aborted', aborted, status = 'shed', shed, 'measured'
        ) AS treatment,
        -- Without a first token, a request that lasted longer than the limit has missed it.
        if(ttft_s IS NULL AND status != 'ok' AND e2e_s > ttft_limit, e2e_s, ttft_s) AS ttft_value,
        [ttft_limit, tpot_limit, itl_limit, stall_limit, e2e_limit] AS limits,
        arrayMap(
            (value, bound) -> if(value IS NULL OR isInfinite(bound), -1., value / bound),
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s],
            limits
        ) AS shares,
        arrayMax(shares) AS worst_share,
        -- Compared and not divided: a quotient may round to 1.
        ifNull(ttft_value > ttft_limit, 0) OR ifNull(tpot_s > tpot_limit, 0)
            OR ifNull(itl_p99_s > itl_limit, 0) OR ifNull(stall_s > stall_limit, 0)
            OR ifNull(e2e_s > e2e_limit, 0) AS is_missed,
        if(
            worst_share < 0,
            NULL,
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s][indexOf(shares, worst_share)]
        ) AS value_s
    FROM
    (
        SELECT * REPLACE (if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS sample_weight),
            toUnixTimestamp64Nano(time) + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) *
                1e9) AS end_ns
        FROM requests
        WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    )
    ARRAY JOIN
        {slo:Array(UInt32)} AS slo,
        {unit:Array(String)} AS unit,
        {target:Array(Float64)} AS target,
        {ttft_limit:Array(Float64)} AS ttft_limit,
        {tpot_limit:Array(Float64)} AS tpot_limit,
        {itl_limit:Array(Float64)} AS itl_limit,
        {stall_limit:Array(Float64)} AS stall_limit,
        {e2e_limit:Array(Float64)} AS e2e_limit,
        {error:Array(String)} AS error,
        {aborted:Array(String)} AS aborted,
        {shed:Array(String)} AS shed,
        {model:Array(String)} AS wanted_model,
        {tenant:Array(String)} AS wanted_tenant,
        {slo_class:Array(String)} AS wanted_slo_class,
        {route:Array(String)} AS wanted_route,
        {prompt_name:Array(String)} AS wanted_prompt_name,
        {prompt_version:Array(String)} AS wanted_prompt_version
    WHERE end_ns >= {from_ns:Int64}
        AND end_ns < {to_ns:Int64}
        AND (wanted_model = '' OR model = wanted_model)
        AND (wanted_tenant = '' OR tenant = wanted_tenant)
        AND (wanted_slo_class = '' OR slo_class = wanted_slo_class)
        AND (wanted_route = '' OR route = wanted_route)
        AND (wanted_prompt_name = '' OR prompt_name = wanted_prompt_name)
        AND (wanted_prompt_version = '' OR prompt_version = wanted_prompt_version)
)
WHERE treatment != 'excluded'
    AND multiIf(
        unit = 'acceptance', drafted_tokens > 0,
        unit = 'cache_hit', input_tokens > 0 AND cached_tokens IS NOT NULL,
        treatment = 'bad' OR worst_share >= 0 OR NOT arrayExists(bound -> isFinite(bound), limits)
    );
