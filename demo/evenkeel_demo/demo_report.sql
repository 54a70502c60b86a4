-- Figures of the requests stored since {since:DateTime64(9)}, without those of the A/B run and the cache's replays.
-- ITL: per-token gaps after the first token; an emission of k tokens is one gap and k − 1 zeros.
SELECT
    count() AS requests,
    countIf(status = 'error') AS errors,
    countIf(status = 'aborted') AS cancelled,
    quantilesExact(0.5, 0.95, 0.99)(ttft_s) AS ttft_s,
    (
        SELECT quantilesExact(0.5, 0.95, 0.99)(gap_s)
        FROM
        (
            SELECT arrayJoin(arrayFlatten(arrayMap(
                (gap, tokens, position) -> arrayPushFront(
                    arrayWithConstant(toUInt64(tokens - 1), toFloat64(0)),
                    if(position = 1, nan, gap)),
                arrayDifference(emission_time_s), emission_tokens, arrayEnumerate(emission_tokens)
            ))) AS gap_s
            FROM requests
            WHERE time >= {since:DateTime64(9)} AND ifNull(route, '') != 'eval'
                AND length(emission_time_s) = length(emission_tokens)
                AND arrayAll(tokens -> tokens BETWEEN 1 AND 65536, emission_tokens)
        )
        WHERE NOT isNaN(gap_s)
    ) AS itl_s,
    sum(output_tokens) / nullIf(dateDiff('millisecond', min(time), max(time)), 0) * 1000 AS tokens_per_s,
    sum(cached_tokens) / nullIf(sum(input_tokens), 0) AS cached_token_ratio,
    sum(accepted_tokens) / nullIf(sum(drafted_tokens), 0) AS acceptance_rate,
    countIf(response_cache IN ('exact', 'semantic')) AS answered_from_cache,
    countIf(response_cache = 'verified') AS verified_from_cache,
    (
        SELECT countIf(SpanAttributes['evenkeel.compression.verdict'] = 'sent')
        FROM spans WHERE Timestamp >= {since:DateTime64(9)}
    ) AS compressed,
    (SELECT count() FROM feedback WHERE time >= {since:DateTime64(9)}) AS feedback,
    (SELECT count() FROM live_evaluations WHERE time >= {since:DateTime64(9)}) AS live_evaluations,
    (SELECT count() FROM spans WHERE Timestamp >= {since:DateTime64(9)}) AS spans_stored
FROM requests
WHERE time >= {since:DateTime64(9)} AND ifNull(route, '') != 'eval'
