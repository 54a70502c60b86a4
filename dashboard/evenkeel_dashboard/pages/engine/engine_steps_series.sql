-- Engine activity per interval, from the engines' step records. Gauges are means weighted by step
-- time, summed over engines, and of a batch by step; rates are per second of the part of the interval inside
-- the range, because the last one is still filling.
WITH
    toFloat64(toUnixTimestamp(bucket)) AS begin_s,
    greatest(1, least(begin_s + {step_s:UInt32}, {to_ms:Int64} / 1000)
        - greatest(begin_s, {from_ms:Int64} / 1000)) AS covered_s
SELECT
    bucket,
    sum(running) AS num_running,
    sum(waiting) AS num_waiting,
    sum(batched) / nullIf(sum(num_steps), 0) AS batch_size,
    sum(busy_s) / nullIf(sum(num_steps), 0) AS step_mean_s,
    max(longest_s) AS step_longest_s,
    avg(least(busy_s / covered_s, 1)) AS busy_ratio,
    max(live_ratio) AS kv_live_ratio,
    max(resident_ratio) AS kv_resident_ratio,
    sum(preempted) AS num_preempted,
    sum(prefilled) / covered_s AS prefill_tokens_per_s,
    sum(emitted) / covered_s AS output_tokens_per_s,
    sum(accepted) / nullIf(sum(drafted), 0) AS acceptance_rate
FROM
(
    SELECT
        toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
        sum(engine_steps.num_running * duration_s) / nullIf(sum(duration_s), 0) AS running,
        sum((engine_steps.num_waiting + num_set_aside) * duration_s) / nullIf(sum(duration_s), 0)
            AS waiting,
        sum(engine_steps.batch_size * engine_steps.num_steps) AS batched,
        sum(engine_steps.num_steps) AS num_steps,
        sum(engine_steps.busy_s) AS busy_s,
        max(engine_steps.longest_s) AS longest_s,
        max(blocks_live / nullIf(blocks_total, 0)) AS live_ratio,
        max(blocks_resident / nullIf(blocks_total, 0)) AS resident_ratio,
        sum(num_preempted) AS preempted,
        sum(prefill_tokens) AS prefilled,
        sum(emitted_tokens) AS emitted,
        sum(accepted_tokens) AS accepted,
        sum(drafted_tokens) AS drafted
    FROM engine_steps
    WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
    GROUP BY bucket, service, instance, engine
)
GROUP BY bucket
ORDER BY bucket
