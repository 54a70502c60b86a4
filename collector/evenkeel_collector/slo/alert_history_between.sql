-- Changes of alerts in [from_ns, to_ns), oldest first.
SELECT time, slo, severity, from_state, state, alert_id, starts_at, ends_at, silenced,
    sli, budget_left_ratio, burn_long, burn_short, factor, labels, annotations
FROM alert_history
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
ORDER BY time
