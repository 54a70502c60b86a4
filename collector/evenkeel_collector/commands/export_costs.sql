-- What is charged, by period and cohort, from the rollups: the sums of the page Cost. Tokens are those
-- that were reported: NULL if no request of a row reported any of that kind.
SELECT
    multiIf(
        {per:String} = 'hour', toStartOfHour(r.minute),
        {per:String} = 'month', toDateTime(toStartOfMonth(r.minute), 'UTC'),
        toStartOfDay(r.minute)) AS period,
    toString(model) AS model,
    toString(tenant) AS tenant,
    toString(slo_class) AS slo_class,
    toString(route) AS route,
    toString(prompt_name) AS prompt_name,
    toString(prompt_version) AS prompt_version,
    toString(service) AS service,
    sum(r.cost) AS cost,
    sum(r.num_requests) AS num_requests,
    sum(r.num_priced) AS num_priced,
    sum(r.num_shed) AS num_shed,
    sum(r.input_tokens) AS input_tokens,
    sum(r.cached_tokens) AS cached_tokens,
    sum(r.output_tokens) AS output_tokens
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
GROUP BY period, model, tenant, slo_class, route, prompt_name, prompt_version, service
ORDER BY period, model, tenant, slo_class, route, prompt_name, prompt_version, service
