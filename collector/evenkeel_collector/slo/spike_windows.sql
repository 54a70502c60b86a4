-- Windows of requests per cohort, for the rules on spikes: the newest ones of 1, 2 and 4 times a width,
-- or with `is_past` those of one width, one after the other. A cohort is the values of some columns; ''
-- is a value that requests lack. Tokens are quantiles: in 40 steps, of past windows the median and
-- the 90 % quantile. Shares are weighted; the number of requests is the effective one, (Σw)² / Σw², so that
-- a row that stands for many is one observation.
SELECT
    cohort,
    arrayJoin(if({is_past:UInt8},
        [intDiv(end_ns, {width_ns:Int64})],
        arrayFilter(x -> end_ns >= {to_ns:Int64} - x * {width_ns:Int64}, [toInt64(1), 2, 4]))) AS place,
    count() AS num_requests,
    count(input_tokens) AS input_tokens_num,
    $quantiles(input_tokens, whole_weight) AS input_tokens_levels,
    count(output_tokens) AS output_tokens_num,
    $quantiles(output_tokens, whole_weight) AS output_tokens_levels,
    count(reasoning_tokens) AS reasoning_tokens_num,
    $quantiles(reasoning_tokens, whole_weight) AS reasoning_tokens_levels,
    pow(sumIf(weight, isNotNull(repeated)), 2) / sumIf(weight * weight, isNotNull(repeated))
        AS repeated_share_num,
    sumIf(weight, repeated) / sumIf(weight, isNotNull(repeated)) AS repeated_share,
    pow(sumIf(weight, isNotNull(empty_one)), 2) / sumIf(weight * weight, isNotNull(empty_one))
        AS empty_share_num,
    sumIf(weight, empty_one) / sumIf(weight, isNotNull(empty_one)) AS empty_share,
    pow(sumIf(weight, isNotNull(cut)), 2) / sumIf(weight * weight, isNotNull(cut)) AS cut_share_num,
    sumIf(weight, cut) / sumIf(weight, isNotNull(cut)) AS cut_share,
    pow(sumIf(weight, isNotNull(failed_tool)), 2) / sumIf(weight * weight, isNotNull(failed_tool))
        AS failed_tool_share_num,
    sumIf(weight, failed_tool) / sumIf(weight, isNotNull(failed_tool)) AS failed_tool_share,
    pow(sumIf(weight, isNotNull(refused)), 2) / sumIf(weight * weight, isNotNull(refused))
        AS refused_share_num,
    sumIf(weight, refused) / sumIf(weight, isNotNull(refused)) AS refused_share,
    row_number() OVER (
        PARTITION BY arrayFilter((value, name) -> name = 'tenant', cohort, {columns:Array(String)})
        ORDER BY num_requests DESC) AS place_in_tenant
FROM
(
    SELECT
        arrayMap(name -> $column_by_name, {columns:Array(String)}) AS cohort,
        $end_ns AS end_ns,
        $weight AS weight,
        toUInt32(round(weight)) AS whole_weight,
        input_tokens,
        output_tokens,
        reasoning_tokens,
        repeated_share > {above:Float64} AS repeated,
        if(status = 'ok', ifNull(visible_tokens, output_tokens - ifNull(reasoning_tokens, 0)) <= 0, NULL)
            AS empty_one,
        if(status = 'ok', finish_reason = 'length', NULL) AS cut,
        tool_calls_failed > 0 AS failed_tool,
        if(status = 'ok', finish_reason = 'content_filter', NULL) AS refused
    FROM requests
    WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        AND ({route:String} = '' OR route = {route:String})
        AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
        AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
        AND ({engine:String} = '' OR engine = {engine:String})
        AND (NOT {is_past:UInt8} OR arrayStringConcat(cohort, {separator:String}) IN {known:Array(String)})
)
WHERE end_ns >= {from_ns:Int64} AND end_ns < {to_ns:Int64}
GROUP BY cohort, place
HAVING {is_past:UInt8} OR num_requests >= {min_requests:UInt32}
-- Each tenant's busiest come before the rest of any tenant, so that none displaces the others.
ORDER BY place_in_tenant, num_requests DESC
LIMIT {most:UInt32}
