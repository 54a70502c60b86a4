-- The values of `{column}` among requests in the range, for a board's menu.
SELECT DISTINCT {column}
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute) AND {column} != ''
ORDER BY {column}
