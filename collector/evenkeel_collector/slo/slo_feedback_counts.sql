-- People's scores of answers and the bad ones, below one half, in buckets of width_ns. The request that
-- a score is about arrived at most two days before it. `selected` are the values of some columns: those in
-- which indicators counted together differ, or those whose values are compared.
SELECT
    intDiv(toUnixTimestamp64Nano(time), {width_ns:Int64}) AS bucket,
    arrayMap(name -> multiIf(
        name = 'model', of_model, name = 'tenant', of_tenant, name = 'slo_class', of_class,
        name = 'route', of_route, name = 'prompt_name', of_prompt,
        name = 'prompt_version', of_version, of_engine
    ), {columns:Array(String)}) AS selected,
    toFloat64(count()) AS total_sum,
    toFloat64(countIf(score < 0.5)) AS bad_sum,
    toUnixTimestamp64Nano(min(time)) AS first_ns
FROM
(
    SELECT
        f.time AS time,
        any(f.score) AS score,
        -- A trace may have several requests; feedback may name one of them.
        argMax(toString(r.model), r.span_id = f.request_span_id) AS of_model,
        argMax(ifNull(toString(ifNull(f.tenant, r.tenant)), ''), r.span_id = f.request_span_id)
            AS of_tenant,
        argMax(ifNull(toString(r.slo_class), ''), r.span_id = f.request_span_id) AS of_class,
        argMax(ifNull(toString(r.route), ''), r.span_id = f.request_span_id) AS of_route,
        argMax(ifNull(toString(r.prompt_name), ''), r.span_id = f.request_span_id) AS of_prompt,
        argMax(ifNull(toString(r.prompt_version), ''), r.span_id = f.request_span_id) AS of_version,
        argMax(ifNull(toString(r.engine), ''), r.span_id = f.request_span_id) AS of_engine
    FROM feedback AS f
    GLOBAL LEFT JOIN
    (
        SELECT trace_id, span_id, model, tenant, slo_class, route, prompt_name, prompt_version, engine
        FROM requests
        WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - 172800000000000, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
            AND trace_id GLOBAL IN (
                SELECT trace_id FROM feedback
                WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
                    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC'))
    ) AS r ON r.trace_id = f.trace_id
        -- Another tenant's feedback says nothing of a request.
        AND (isNull(f.tenant) OR isNull(r.tenant) OR f.tenant = r.tenant)
    WHERE f.time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND f.time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND isNotNull(f.score)
    GROUP BY f.trace_id, f.span_id, f.time
)
WHERE ({model:String} = '' OR of_model = {model:String})
    AND ({tenant:String} = '' OR of_tenant = {tenant:String})
    AND ({slo_class:String} = '' OR of_class = {slo_class:String})
    AND ({route:String} = '' OR of_route = {route:String})
    AND ({prompt_name:String} = '' OR of_prompt = {prompt_name:String})
    AND ({prompt_version:String} = '' OR of_version = {prompt_version:String})
    AND ({engine:String} = '' OR of_engine = {engine:String})
    AND arrayAll(
        (column, pattern, excludes) -> match(multiIf(
            column = 'model', of_model, column = 'tenant', of_tenant, column = 'slo_class', of_class,
            column = 'route', of_route, column = 'prompt_name', of_prompt,
            column = 'prompt_version', of_version, of_engine
        ), pattern) != excludes,
        {filter_column:Array(String)}, {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
    )
GROUP BY bucket, selected
