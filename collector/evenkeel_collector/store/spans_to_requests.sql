-- The query of the view spans_to_requests; request_columns.py fills it in from the list of fields, except for those
-- that are written here. Numbers follow the rule in 02_requests.sql.
-- In steps, each of which reads the columns of the one below: the engine analyses a view at each insert, and
-- replaces each alias by what it stands for, but not a column.
WITH
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of
SELECT
    Timestamp AS time,
    TraceId AS trace_id,
    SpanId AS span_id,
    ServiceName AS service,
    -- A session's ID of more than 256 characters is replaced by its hash, as in requests of others and for tools
    -- (0036_sessions.sql): they are in one session.
    nullIf(if(length(said_session) > 256, concat('long-', lower(hex(sipHash128(said_session)))), said_session), '')
        AS session_id,
    nullIf(JSONExtractString(SpanAttributes['gen_ai.response.finish_reasons'], 1), '') AS finish_reason,
    mapApply((cause, seconds) -> (substring(cause, 17), toFloat64OrZero(seconds)),
        mapFilter((cause, _) -> NOT mapContains(refused_ledger, cause), ledger_texts)) AS ledger,
    coalesce(numbers[1], 1) AS sample_weight,
    coalesce(numbers[2], 1) AS detail_probability,
    mapContains(SpanAttributes, 'evenkeel.clamped.start_unix_nano') AS is_time_clamped,
    $columns,
    CAST(arrayConcat(
        arrayMap(place -> (names[place], reason_of(texts[place])),
            arrayFilter((place, text, number) -> text != '' AND isNull(number),
                arrayEnumerate(texts), texts, numbers)),
        arrayFilter(x -> x.1 != '', arrayMap((name, text, said, in_range, list) -> if(
                text IN ('', '[]') OR notEmpty(list), ('', ''),
                (name, multiIf(empty(said), 'not_a_number', empty(in_range), 'out_of_range', 'lengths_differ'))),
            list_names, list_texts, said_lists, lists_in_range, lists)),
        arraySlice(arrayMap(text -> ('ledger', reason_of(text)), mapValues(refused_ledger)), 1, 1)),
        'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
FROM (
    -- A series is two lists of one length.
    SELECT *, arrayMap((list, name) -> if(name NOT IN ('emission_time_s', 'emission_tokens')
            OR length(lists_in_range[indexOf(list_names, 'emission_time_s')])
                = length(lists_in_range[indexOf(list_names, 'emission_tokens')]),
        list, []), lists_in_range, list_names) AS lists
    FROM (
        SELECT *, arrayMap((list, low, high, is_whole) -> if(
                arrayAll(x -> ifNull(x BETWEEN low AND high AND x = if(is_whole, floor(x), x), 0), list),
                list, []),
            said_lists, [$list_lows], [$list_highs], [$list_wholes]) AS lists_in_range
        FROM (
            SELECT *,
                arrayMap((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
                        AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
                        toFloat64OrNull(text), NULL),
                    texts, [1., 0., $lows], [1000000., 1., $highs], [0, 0, $wholes]) AS numbers,
                arrayMap(text -> JSONExtract(text, 'Array(Nullable(Float64))'), list_texts) AS said_lists,
                mapFilter((_, text) -> NOT ifNull(toFloat64OrNull(text) BETWEEN 0. AND 1000000., 0),
                    ledger_texts) AS refused_ledger
            FROM (
                SELECT Timestamp, TraceId, SpanId, ServiceName, SpanAttributes,
                    ['sample_weight', 'detail_probability', $names] AS names,
                    [SpanAttributes['evenkeel.sample_weight'], SpanAttributes['evenkeel.detail_probability'],
                        $texts] AS texts,
                    [$list_names] AS list_names,
                    [$list_texts] AS list_texts,
                    mapFilter((key, _) -> startsWith(key, 'evenkeel.ledger.'), SpanAttributes) AS ledger_texts,
                    SpanAttributes['gen_ai.conversation.id'] AS said_session
                FROM spans
                WHERE SpanAttributes['evenkeel.status'] != ''
            )
        )
    )
)
