-- The SLOs evaluated in the range, for a board's menu. Without those that have a backslash, which
-- Grafana's `sqlstring` does not escape: the name of a group holds names that callers choose.
SELECT DISTINCT slo
FROM evenkeel.slo_status
WHERE $__timeFilter(time) AND position(slo, '\\') = 0
ORDER BY slo
