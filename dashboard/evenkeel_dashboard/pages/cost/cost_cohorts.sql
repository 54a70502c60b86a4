-- Costs by cohort in a range (`is_now`) and in the one before it, from the rollups. Tokens are those of
-- requests with a price only if all have one: `num_priced` says.
SELECT
    is_now,
    cohort,
    sum(part.cost) AS cost,
    sum(part.num_requests) AS num_requests,
    sum(part.num_priced) AS num_priced,
    sum(part.num_shed) AS num_shed,
    ifNull(sum(part.tokens), 0) AS tokens,
    sum(part.cancelled_cost) + sum(part.failed_cost) + sum(part.wasted_cost) AS wasted_cost
FROM
(
    SELECT
        1 AS is_now, cost, num_requests, num_priced, num_shed, cancelled_cost, failed_cost, wasted_cost,
        ifNull(input_tokens, 0) + ifNull(output_tokens, 0) AS tokens,
        multiIf(
            {dimension:String} = 'model', toString(model),
            {dimension:String} = 'tenant', toString(tenant),
            {dimension:String} = 'route', toString(route),
            {dimension:String} = 'service', toString(service),
            if(prompt_name = '', '', concat(prompt_name, '@', prompt_version))) AS cohort
    FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600)
    WHERE ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    UNION ALL
    SELECT
        0 AS is_now, cost, num_requests, num_priced, num_shed, cancelled_cost, failed_cost, wasted_cost,
        ifNull(input_tokens, 0) + ifNull(output_tokens, 0) AS tokens,
        multiIf(
            {dimension:String} = 'model', toString(model),
            {dimension:String} = 'tenant', toString(tenant),
            {dimension:String} = 'route', toString(route),
            {dimension:String} = 'service', toString(service),
            if(prompt_name = '', '', concat(prompt_name, '@', prompt_version))) AS cohort
    FROM requests_rolled(
        from_ms = 2 * {from_ms:Int64} - {to_ms:Int64}, to_ms = {from_ms:Int64}, step_s = 3600)
    WHERE ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
) AS part
GROUP BY is_now, cohort
ORDER BY is_now DESC, cost DESC, num_requests DESC, cohort
