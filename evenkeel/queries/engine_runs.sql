-- Runs of engine steps in a range, in the order of time; `time_s` is counted from `origin_ms`.
SELECT
    (toUnixTimestamp64Nano(engine_steps.time) - {origin_ms:Int64} * 1000000) / 1e9 AS time_s,
    model,
    service,
    instance,
    engine,
    duration_s,
    busy_s,
    num_steps,
    num_running,
    num_waiting,
    held_by,
    prefill_tokens,
    decode_tokens,
    drafted_tokens,
    num_preempted,
    blocks_live,
    blocks_total,
    prefilling_request_id,
    prefilling_tokens
FROM engine_steps
WHERE engine_steps.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND engine_steps.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND num_steps > 0
ORDER BY engine_steps.time
