-- How evenly each engine's steps take their time: mean and spread of the runs' mean step time, and steps
-- that took far longer than usual for their batch size. A straggler is a run whose longest step took
-- more than 4 times the median of the same model's runs of a similar batch and prompt size.
WITH runs AS
(
    SELECT
        service, instance, engine, time, busy_s, longest_s, num_steps,
        busy_s / num_steps AS step_s,
        quantileExactWeighted(0.5)(busy_s / num_steps, num_steps) OVER (
            PARTITION BY model, ceil(log2(1 + batch_size)), ceil(log2(1 + prefill_tokens / num_steps)))
            AS usual_s
    FROM engine_steps
    WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
        AND num_steps > 0 AND busy_s > 0
)
SELECT
    service, instance, engine,
    sum(num_steps) AS num_steps_sum,
    sum(busy_s) / num_steps_sum AS mean_s,
    sqrt(greatest(0, sum(num_steps * step_s * step_s) / num_steps_sum - mean_s * mean_s)) AS spread_s,
    sum(busy_s) / sum(usual_s * num_steps) AS against_usual,
    countIf(longest_s > 4 * usual_s) AS num_stragglers,
    sumIf(longest_s - usual_s, longest_s > 4 * usual_s) AS straggled_s,
    max(longest_s) AS worst_s,
    toUnixTimestamp64Milli(argMax(time, longest_s)) AS worst_ms
FROM runs
GROUP BY service, instance, engine
ORDER BY against_usual DESC, service, instance, engine
LIMIT 20
