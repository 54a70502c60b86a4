-- Every valid event of one or several SLOs, judged: what verdicts count and evidence shows. The rule is
-- that of evenkeel/slo/good_events.py, filled in at each start. Each array parameter has one element per
-- SLO. A limit of inf judges nothing; without any finite limit an event is good that ended well.
-- An event's time is the request's end: docs/decisions/0060-end-of-request.md. Rows are pruned by
-- their start, so a request longer than max_request_ns is not seen.
--
-- slo: its place in the arrays. total, bad: what the event weighs, in requests (sample_weight), or in
-- tokens if `unit` is a ratio of tokens. value_s: the judged value that lies furthest above its limit.
CREATE OR REPLACE VIEW slo_judged AS
SELECT
    *,
    sample_weight * num_events AS total,
    if(is_bad, total, sample_weight * (num_events - least(num_good, num_events))) AS bad,
    bad <= total * (1 - target) AS is_good
FROM
(
    SELECT
        *,
        slo,
        unit,
        target,
        $ending AS ending,
        ['measured', error, aborted, shed, 'excluded'][ending + 1] AS treatment,
        -- 0: no range has its HTTP status.
        arrayMax(
            (of_slo, first, last, kind) ->
                if(of_slo = slo AND ifNull(http_status BETWEEN first AND last, 0), kind, 0),
            arrayPushBack({status_slo:Array(UInt32)}, 0), arrayPushBack({status_first:Array(UInt16)}, 1),
            arrayPushBack({status_last:Array(UInt16)}, 0), arrayPushBack({status_kind:Array(UInt8)}, 0)
        ) AS status_treatment,
        $is_bad AS is_bad,
        $is_excluded AS is_excluded,
        $is_missed AS is_missed,
        $is_judged AS is_judged,
        if(ttft_s IS NULL AND $has_waited, e2e_s, ttft_s) AS ttft_value,
        [ttft_limit, tpot_limit, itl_limit, stall_limit, e2e_limit] AS limits,
        arrayMap(
            (value, bound) -> if(value IS NULL OR isInfinite(bound), -1., value / bound),
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s],
            limits
        ) AS shares,
        arrayMax(shares) AS worst_share,
        if(
            worst_share < 0,
            NULL,
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s][indexOf(shares, worst_share)]
        ) AS value_s,
        multiIf($token_events, 1) AS num_events,
        multiIf($good_tokens, NOT is_missed) AS num_good
    FROM
    (
        SELECT * REPLACE ($weight AS sample_weight), $end_ns AS end_ns
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
        {prompt_version:Array(String)} AS wanted_prompt_version,
        {engine:Array(String)} AS wanted_engine
    WHERE end_ns >= {from_ns:Int64}
        AND end_ns < {to_ns:Int64}
        AND (wanted_model = '' OR model = wanted_model)
        AND (wanted_tenant = '' OR tenant = wanted_tenant)
        AND (wanted_slo_class = '' OR slo_class = wanted_slo_class)
        AND (wanted_route = '' OR route = wanted_route)
        AND (wanted_prompt_name = '' OR prompt_name = wanted_prompt_name)
        AND (wanted_prompt_version = '' OR prompt_version = wanted_prompt_version)
        AND (wanted_engine = '' OR engine = wanted_engine)
        -- Patterns are RE2; what matches one that excludes is left out.
        AND arrayAll(
            (of_slo, column, pattern, excludes) -> of_slo != slo OR match(multiIf(
                column = 'model', toString(model),
                column = 'tenant', ifNull(toString(tenant), ''),
                column = 'slo_class', ifNull(toString(slo_class), ''),
                column = 'route', ifNull(toString(route), ''),
                column = 'prompt_name', ifNull(toString(prompt_name), ''),
                column = 'prompt_version', ifNull(toString(prompt_version), ''),
                ifNull(toString(engine), '')), pattern) != excludes,
            {filter_slo:Array(UInt32)}, {filter_column:Array(String)},
            {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
        )
)
WHERE NOT is_excluded
    AND if(unit = 'request',
        is_bad OR is_judged OR NOT arrayExists(bound -> isFinite(bound), limits),
        num_events > 0 AND num_good IS NOT NULL)
