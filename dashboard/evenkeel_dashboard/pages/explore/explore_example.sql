SELECT model, count() AS requests, quantile(0.95)(ttft_s) AS ttft_p95_s
FROM requests
WHERE time > now() - INTERVAL 1 HOUR
GROUP BY model
ORDER BY requests DESC
