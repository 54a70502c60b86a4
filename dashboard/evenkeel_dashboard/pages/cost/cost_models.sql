-- What each model's requests cost, wasted and saved, and their cached tokens, by day: prices change at
-- dates. `day_ms` is the day's begin.
SELECT
    model,
    toUnixTimestamp(toStartOfDay(r.minute)) * 1000 AS day_ms,
    sum(r.num_requests) AS num_requests,
    sum(r.num_priced) AS num_priced,
    sum(r.num_shed) AS num_shed,
    sum(r.cost) AS cost,
    sum(r.cancelled_cost) AS cancelled_cost,
    sum(r.failed_cost) AS failed_cost,
    sum(r.wasted_cost) AS wasted_cost,
    sum(r.saved_prefix_cost) AS saved_prefix_cost,
    sum(r.saved_drafts_cost) AS saved_drafts_cost,
    ifNull(sum(r.cached_tokens), 0) AS cached_tokens,
    ifNull(sum(r.input_tokens), 0) + ifNull(sum(r.output_tokens), 0) AS tokens
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
WHERE ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY model, day_ms
ORDER BY model, day_ms
