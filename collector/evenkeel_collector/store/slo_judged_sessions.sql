-- Every session that is over, judged by one or several SLOs; see slo_judged. The rule is that of
-- evenkeel/slo/good_events.py. A session is over after silence_ns without a request or a tool call; that
-- is when its event happens, because only then is it known. If it goes on, its event moves.
--
-- slo: its place in the arrays. total, bad: 1 and 0 or 1. value: seconds or turns.
CREATE OR REPLACE VIEW slo_judged_sessions AS
SELECT
    *,
    toFloat64(1) AS total,
    toFloat64(treatment = 'bad' OR ifNull(value > limit, 0)) AS bad
FROM
(
    SELECT
        *,
        slo,
        metric,
        limit,
        toUnixTimestamp64Nano(end) + silence_ns AS over_ns,
        $session_ending AS ending,
        ['measured', error, aborted, shed][ending + 1] AS treatment,
        $session_value AS value
    FROM
    (
        -- As the view `sessions` has them, but without merging intervals.
        SELECT
            session_id,
            tenant,
            minIf(session_parts_named.start, kind != 'agent') AS start,
            maxIf(session_parts_named.end, kind != 'agent') AS end,
            (toUnixTimestamp64Nano(end) - toUnixTimestamp64Nano(start)) / 1e9 AS e2e_s,
            sumIf(num, kind = 'request') AS num_requests,
            sumIf(num, kind = 'tool') AS num_tools,
            sum(session_parts_named.num_evicted) AS num_evicted,
            max(session_parts_named.model) AS model,
            max(session_parts_named.route) AS route,
            argMaxMerge(session_parts_named.last_status) AS last_status
        FROM session_parts_named
        -- Those seen last after the range began, and few others: by hash, which is faster. Work takes at
        -- most 11.6 days.
        WHERE cityHash64(tenant, session_id) IN (
            SELECT cityHash64(tenant, session_id)
            FROM session_parts_named
            WHERE end >= fromUnixTimestamp64Nano(
                    {from_ns:Int64} - arrayMax({silence_ns:Array(Int64)}), 'UTC')
                AND day >= toDate(fromUnixTimestamp64Nano(
                    {from_ns:Int64} - arrayMax({silence_ns:Array(Int64)}), 'UTC')) - 13
                AND kind != 'agent'
        )
        GROUP BY tenant, session_id
        HAVING num_requests > 0
    )
    ARRAY JOIN
        {slo:Array(UInt32)} AS slo,
        {metric:Array(String)} AS metric,
        {limit:Array(Float64)} AS limit,
        {error:Array(String)} AS error,
        {aborted:Array(String)} AS aborted,
        {shed:Array(String)} AS shed,
        {silence_ns:Array(Int64)} AS silence_ns,
        {model:Array(String)} AS wanted_model,
        {tenant:Array(String)} AS wanted_tenant,
        {route:Array(String)} AS wanted_route
    WHERE over_ns >= {from_ns:Int64}
        AND over_ns < {to_ns:Int64}
        AND (wanted_model = '' OR model = wanted_model)
        AND (wanted_tenant = '' OR tenant = wanted_tenant)
        AND (wanted_route = '' OR route = wanted_route)
        AND arrayAll(
            (of_slo, column, pattern, excludes) -> of_slo != slo OR match(
                multiIf(column = 'model', model, column = 'tenant', tenant, route), pattern) != excludes,
            {filter_slo:Array(UInt32)}, {filter_column:Array(String)},
            {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
        )
)
WHERE treatment != 'excluded'
