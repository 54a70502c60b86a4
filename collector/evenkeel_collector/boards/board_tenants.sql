-- The tenants with requests in the range, for a board's menu.
SELECT DISTINCT tenant
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute) AND tenant != ''
ORDER BY tenant
