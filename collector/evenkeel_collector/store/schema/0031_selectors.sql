-- As in 0030, with selectors beyond single values, and HTTP statuses that count as the objective says.
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
        -- 0: no range has its HTTP status; 1 measured, 2 bad, 3 excluded.
        arrayMax(
            (of_slo, first, last, kind) ->
                if(of_slo = slo AND ifNull(http_status BETWEEN first AND last, 0), kind, 0),
            arrayPushBack({status_slo:Array(UInt32)}, 0), arrayPushBack({status_first:Array(UInt16)}, 1),
            arrayPushBack({status_last:Array(UInt16)}, 0), arrayPushBack({status_kind:Array(UInt8)}, 0)
        ) AS kind_of_status,
        multiIf(
            kind_of_status = 1, 'measured', kind_of_status = 2, 'bad', kind_of_status = 3, 'excluded',
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
        -- Patterns are RE2; what matches one that excludes is left out.
        AND arrayAll(
            (of_slo, column, pattern, excludes) -> of_slo != slo OR match(multiIf(
                column = 'model', toString(model),
                column = 'tenant', ifNull(toString(tenant), ''),
                column = 'slo_class', ifNull(toString(slo_class), ''),
                column = 'route', ifNull(toString(route), ''),
                column = 'prompt_name', ifNull(toString(prompt_name), ''),
                ifNull(toString(prompt_version), '')), pattern) != excludes,
            {filter_slo:Array(UInt32)}, {filter_column:Array(String)},
            {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
        )
)
WHERE treatment != 'excluded'
    AND multiIf(
        unit = 'acceptance', drafted_tokens > 0,
        unit = 'cache_hit', input_tokens > 0 AND cached_tokens IS NOT NULL,
        treatment = 'bad' OR worst_share >= 0 OR NOT arrayExists(bound -> isFinite(bound), limits)
    );
