-- What each model's requests cost, wasted and saved, and their cached tokens, by day, and within a day from each
-- change of a price on: `since_ms`. Whole hours are read as one, at the price of their begin.
WITH (
    SELECT arraySort(groupUniqArrayArray([valid_from, valid_until]))
    FROM prices
    WHERE number = (SELECT max(number) FROM prices)
) AS changes
SELECT
    model,
    toUnixTimestamp(greatest(toStartOfDay(r.minute),
        ifNull(arrayLast(change -> change <= r.minute, changes), r.minute - 86400))) * 1000 AS since_ms,
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
GROUP BY model, since_ms
ORDER BY model, since_ms
