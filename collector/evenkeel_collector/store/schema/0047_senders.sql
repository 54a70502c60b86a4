-- Whose token sent a live evaluation; '' if it was no tenant's. `tenant` is that of the request it is about.
ALTER TABLE judgement_spans ADD COLUMN IF NOT EXISTS sender LowCardinality(String);
ALTER TABLE live_evaluations ADD COLUMN IF NOT EXISTS sender LowCardinality(String);

-- As before, with the sender.
ALTER TABLE spans_to_judgement_spans MODIFY QUERY
SELECT Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, SpanAttributes,
    ResourceAttributes['evenkeel.tenant'] AS sender
FROM spans
WHERE SpanName IN ('evenkeel.evaluation', 'evenkeel.evaluation.run', 'evenkeel.evaluation.live',
    'evenkeel.feedback');

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
    sender,
    nullIf(SpanAttributes['evenkeel.prompt.name'], '') AS prompt_name,
    nullIf(SpanAttributes['evenkeel.prompt.version'], '') AS prompt_version,
    CAST(refused, 'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM judgement_spans
WHERE SpanName = 'evenkeel.evaluation.live';
