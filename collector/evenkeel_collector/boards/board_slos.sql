-- The SLOs evaluated in the range, for a board's menu.
SELECT DISTINCT slo
FROM evenkeel.slo_status
WHERE $__timeFilter(time)
ORDER BY slo
