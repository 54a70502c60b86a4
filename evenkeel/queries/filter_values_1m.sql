-- What can be filtered by in a long range, from the minute rollup, the most frequent first.
SELECT
    topKWeighted(50)(model, num_requests_whole) AS models,
    topKWeightedIf(50)(tenant, num_requests_whole, tenant != '') AS tenants,
    topKWeightedIf(50)(
        concat(prompt_name, '@', prompt_version), num_requests_whole, prompt_name != '') AS prompts,
    topKWeightedIf(50)(slo_class, num_requests_whole, slo_class != '') AS slo_classes
FROM
(
    SELECT model, tenant, prompt_name, prompt_version, slo_class,
        toUInt64(ceil(sum(num_requests))) AS num_requests_whole
    FROM requests_1m
    WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
        AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
    GROUP BY model, tenant, prompt_name, prompt_version, slo_class
)
