-- Number of requests in a range, in total and per model, and the values to filter by: most frequent
-- first, without absent values.
WITH if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS weight
SELECT
    sum(weight) AS num_requests,
    sumMap(map(toString(model), toFloat64(weight))) AS num_by_model,
    topK(50)(model) AS models,
    topK(50)(tenant) AS tenants,
    topK(50)(concat(prompt_name, '@', prompt_version)) AS prompts,
    topK(50)(slo_class) AS slo_classes,
    topK(50)(service) AS services
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
