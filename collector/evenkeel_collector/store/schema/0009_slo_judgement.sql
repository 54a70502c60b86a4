-- Every valid event of one or several SLOs, judged: what verdicts count and evidence shows. It takes
-- the place of slo_events, which judged one SLO by one limit. Each array parameter has one element an
-- SLO. A limit of inf judges nothing; without any finite limit an event is good that ended well.
-- An event's time is the request's end: docs/decisions/0060-end-of-request.md. Rows are pruned by
-- their start, so a request longer than max_request_ns is not seen.
--
-- slo: its place in the arrays. total, bad: what the event weighs, in requests (sample_weight), or in
-- tokens where `unit` says acceptance (drafted tokens) or cache_hit (input tokens). value_s: the
-- judged value that lies furthest above its limit.
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

DROP VIEW IF EXISTS slo_events;
