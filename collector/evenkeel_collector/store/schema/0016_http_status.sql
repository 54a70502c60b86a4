-- What the client was answered, on the row; and SLOs that leave out what the caller got wrong.

ALTER TABLE requests ADD COLUMN IF NOT EXISTS http_status Nullable(UInt16) AFTER error_type;

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
    toUInt16OrNull(SpanAttributes['http.response.status_code']) AS http_status,
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

-- As in 0009, but for one thing: a request that failed with a 4xx is the caller's mistake and no
-- event, unless it timed out (408) or was turned away for load (429).
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
        unit = 'acceptance', sample_weight * (drafted_tokens - accepted_tokens),
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
        SELECT *, toUnixTimestamp64Nano(time) + toInt64(ifNull(e2e_s, 0) * 1e9) AS end_ns
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
