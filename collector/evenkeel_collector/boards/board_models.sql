-- The models with requests in the range, for a board's menu.
SELECT DISTINCT model
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute) AND model != ''
ORDER BY model
