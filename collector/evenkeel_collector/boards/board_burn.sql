-- Highest burn rate over the long windows of each SLO.
SELECT
    $__timeInterval(time) AS time,
    slo,
    max(arrayMax(arrayMap(x -> ifNull(x, 0), windows.burn_long))) AS burn_rate
FROM evenkeel.slo_status
WHERE $__timeFilter(slo_status.time)
  AND $__conditionalAll(slo IN (${slo:sqlstring}), $slo)
  AND notEmpty(windows.burn_long)
GROUP BY time, slo
ORDER BY time, slo
