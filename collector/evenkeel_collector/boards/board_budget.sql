-- Budget left of each SLO, the newest evaluation of each step.
SELECT
    $__timeInterval(time) AS time,
    slo,
    argMax(budget_left_ratio, slo_status.time) AS budget_left
FROM evenkeel.slo_status
WHERE $__timeFilter(slo_status.time)
  AND $__conditionalAll(slo IN (${slo:sqlstring}), $slo)
GROUP BY time, slo
ORDER BY time, slo
