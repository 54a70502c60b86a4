-- Each alert that fired or was pending in a range: its newest state and when it fired.
-- Alerts that need attention come first, pages before tickets. Counts are of all, also of those beyond the
-- limit.
SELECT
    alert_id,
    argMax(h.slo, h.time) AS slo,
    argMax(h.severity, h.time) AS severity,
    argMax(h.labels['alertname'], h.time) AS alertname,
    argMax(h.state, h.time) AS state,
    toUnixTimestamp64Milli(min(h.starts_at)) AS started_ms,
    toUnixTimestamp64Milli(minOrNullIf(h.time, h.state = 'firing')) AS fired_ms,
    toUnixTimestamp64Milli(maxOrNull(h.ends_at)) AS ended_ms,
    max(h.silenced) AS was_silenced,
    argMaxIf(h.burn_long, h.time, h.state = 'firing') AS burn_long,
    argMaxIf(h.factor, h.time, h.state = 'firing') AS factor,
    argMaxIf(h.annotations, h.time, h.state = 'firing') AS annotations,
    count() OVER () AS num_alerts,
    countIf(state = 'firing' AND severity = 'page') OVER () AS num_pages,
    countIf(state = 'firing' AND severity != 'page') OVER () AS num_tickets,
    countIf(state = 'pending') OVER () AS num_pending
FROM evenkeel.alert_history AS h
WHERE h.time < fromUnixTimestamp64Milli({to_ms:Int64})
GROUP BY alert_id
HAVING state IN ('firing', 'pending')
    OR max(h.time) >= fromUnixTimestamp64Milli({from_ms:Int64})
ORDER BY state != 'firing', state != 'pending', severity != 'page', started_ms DESC, slo, severity, alert_id
LIMIT 100
