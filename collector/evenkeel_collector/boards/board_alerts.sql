-- Changes of alerts, newest first.
SELECT
    time,
    slo,
    severity,
    state,
    silenced,
    budget_left_ratio,
    burn_long AS burn_rate,
    annotations['summary'] AS summary
FROM evenkeel.alert_history
WHERE $__timeFilter(time)
  AND $__conditionalAll(slo IN (${slo:sqlstring}), $slo)
ORDER BY time DESC
LIMIT 100
