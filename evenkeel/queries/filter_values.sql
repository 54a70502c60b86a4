-- What can be filtered by in a range, the most frequent first; absent values are left out.
SELECT
    topK(50)(model) AS models,
    topK(50)(tenant) AS tenants,
    topK(50)(concat(prompt_name, '@', prompt_version)) AS prompts,
    topK(50)(slo_class) AS slo_classes,
    topK(50)(service) AS services
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
