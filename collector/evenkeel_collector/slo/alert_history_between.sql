-- Changes of alerts in [from_ns, to_ns), and the later ends of those that fired in it, oldest first.
SELECT time, slo, severity, from_state, state, alert_id, starts_at, ends_at, silenced,
    sli, budget_left_ratio, burn_long, burn_short, factor, labels, annotations
FROM alert_history
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND (time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        OR state = 'resolved' AND alert_id GLOBAL IN (
            SELECT alert_id FROM alert_history
            WHERE state = 'firing' AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
                AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')))
ORDER BY time
