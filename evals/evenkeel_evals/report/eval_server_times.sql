-- Server-side time by phase of an evaluation run's requests, one row per trace.
SELECT trace_id, queue_s, prefill_s, decode_s, output_tokens, engine_s, energy_j,
    ifNull(tensor_parallel, 1) * ifNull(pipeline_parallel, 1) AS num_devices
FROM evenkeel.requests
WHERE session_id IN {sessions:Array(String)}
  AND time >= fromUnixTimestamp64Nano({start_ns:Int64} - 60000000000)
  AND status = 'ok'
ORDER BY time
