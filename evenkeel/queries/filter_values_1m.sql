-- What can be filtered by in a long range, from the minute rollup, the most frequent first.
SELECT
    topKWeighted(50)(model, num_requests_whole) AS models,
    topKWeightedIf(50)(tenant, num_requests_whole, tenant != '') AS tenants,
    topKWeightedIf(50)(
        concat(prompt_name, '@', prompt_version), num_requests_whole, prompt_name != '') AS prompts,
    topKWeightedIf(50)(slo_class, num_requests_whole, slo_class != '') AS slo_classes,
    topKWeightedIf(50)(service, num_requests_whole, service != '') AS services
FROM
(
    SELECT model, tenant, prompt_name, prompt_version, slo_class, service,
        toUInt64(ceil(sum(num_requests))) AS num_requests_whole
    FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600)
    GROUP BY model, tenant, prompt_name, prompt_version, slo_class, service
)
