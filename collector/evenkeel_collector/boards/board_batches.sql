-- Batch size and queue, weighted by the duration of the steps.
SELECT
    $__timeInterval(time) AS time,
    sum(batch_size * duration_s) / nullIf(sum(duration_s), 0) AS batch,
    sum(num_waiting * duration_s) / nullIf(sum(duration_s), 0) AS waiting
FROM evenkeel.engine_steps
WHERE $__timeFilter(engine_steps.time)
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
GROUP BY time
ORDER BY time
