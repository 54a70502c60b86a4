-- What rules say of near hits of the response cache that were compared with the model's own answer,
-- over [from_ns, to_ns): drafts, shadows and replays of what was served, but no drafts and shadows
-- that a guard objects to. `requests` counts comparisons. cache_wrong_upper is the upper end of Wilson's
-- one-sided 95% interval of the share of wrong ones; cache_similarity_min the lowest cosine at which
-- a near hit was served. Unless the rule selects a tenant, what a tenant's token sent does not count.
WITH 1.6448536269514722 AS z
SELECT
    0 AS bucket,
    toFloat64(countIf(verdict != '')) AS requests,
    countIf(verdict = 'different') / nullIf(requests, 0) AS cache_wrong_ratio,
    (cache_wrong_ratio + z * z / (2 * requests)
        + z * sqrt(cache_wrong_ratio * (1 - cache_wrong_ratio) / requests
            + z * z / (4 * requests * requests))) / (1 + z * z / requests) AS cache_wrong_upper,
    minOrNullIf(similarity, outcome = 'semantic') AS cache_similarity_min
FROM
(
    SELECT
        if(SpanAttributes['evenkeel.cache.reason'] = '',
            SpanAttributes['evenkeel.cache.verdict'], '') AS verdict,
        toFloat64OrNull(SpanAttributes['evenkeel.cache.similarity']) AS similarity,
        SpanAttributes['evenkeel.response_cache'] AS outcome
    FROM spans
    WHERE Timestamp >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND Timestamp < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND mapContains(SpanAttributes, 'evenkeel.cache.similarity')
        AND ({model:String} = '' OR SpanAttributes['gen_ai.request.model'] = {model:String})
        AND ({tenant:String} = '' OR SpanAttributes['evenkeel.tenant'] = {tenant:String})
        AND ({tenant:String} != '' OR ResourceAttributes['evenkeel.tenant'] = '')
        AND ({route:String} = '' OR SpanAttributes['evenkeel.route'] = {route:String})
        AND ({slo_class:String} = '' OR SpanAttributes['evenkeel.slo_class'] = {slo_class:String})
        AND ({prompt_name:String} = ''
            OR SpanAttributes['evenkeel.prompt.name'] = {prompt_name:String})
        AND ({prompt_version:String} = ''
            OR SpanAttributes['evenkeel.prompt.version'] = {prompt_version:String})
        AND ({engine:String} = '' OR SpanAttributes['evenkeel.engine.name'] = {engine:String})
)
HAVING count() > 0
