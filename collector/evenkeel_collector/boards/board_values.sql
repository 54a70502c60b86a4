-- The values of `{column}` among requests in the range, for a board's menu. Without those that have
-- a backslash, which Grafana's `sqlstring` does not escape: callers choose the names.
SELECT DISTINCT {column}
FROM evenkeel.requests_1m
WHERE $__timeFilter(minute) AND {column} != '' AND position({column}, '\\') = 0
ORDER BY {column}
