-- Mean feedback by tenant.
SELECT
    $__timeInterval(time) AS time,
    ifNull(tenant, 'none') AS tenant,
    avg(score) AS mean_score
FROM evenkeel.feedback
WHERE $__timeFilter(feedback.time) AND isNotNull(score)
GROUP BY time, tenant
ORDER BY time, tenant
