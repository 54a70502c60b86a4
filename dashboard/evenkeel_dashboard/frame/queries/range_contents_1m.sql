-- As range_contents.sql, for a range of whole minutes, from the rollup.
SELECT
    sum(weight) AS num_requests,
    sumMap(map(toString(model), weight)) AS num_by_model,
    topKWeighted(50)(model, whole_weight) AS models,
    topKWeightedIf(50)(tenant, whole_weight, tenant != '') AS tenants,
    topKWeightedIf(50)(
        concat(prompt_name, '@', prompt_version), whole_weight,
        prompt_name != '' AND prompt_version != '') AS prompts,
    topKWeightedIf(50)(slo_class, whole_weight, slo_class != '') AS slo_classes,
    topKWeightedIf(50)(service, whole_weight, service != '') AS services
FROM
(
    SELECT model, tenant, prompt_name, prompt_version, slo_class, service,
        sum(num_requests) AS weight, toUInt64(ceil(weight)) AS whole_weight
    FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600)
    GROUP BY model, tenant, prompt_name, prompt_version, slo_class, service
)
