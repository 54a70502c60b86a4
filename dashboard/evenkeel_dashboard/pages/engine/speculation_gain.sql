-- The newest measured speed-up of speculation of each server, from the steps that its controller drew at
-- random to run without drafts; `batch` is "all" or a batch size.
SELECT
    service, instance, attributes['batch'] AS batch,
    argMaxIf(value, time, attributes['bound'] = 'estimate') AS ratio,
    argMaxIf(value, time, attributes['bound'] = 'lower') AS lower,
    argMaxIf(value, time, attributes['bound'] = 'upper') AS upper
FROM engine_state
WHERE engine_state.name = 'evenkeel_speculation_speedup_ratio'
    AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND isNotNull(value)
GROUP BY service, instance, resource_attributes['evenkeel.tenant'], batch
ORDER BY service, instance, batch != 'all', toUInt32OrZero(batch)
LIMIT 40
