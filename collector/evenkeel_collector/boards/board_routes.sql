-- The routes with requests in the range, for a board's menu.
SELECT DISTINCT route
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute) AND route != ''
ORDER BY route
