-- Share of engine time in which requests waited, by the reason.
SELECT
    $__timeInterval(time) AS time,
    held_by,
    sum(duration_s) / $__interval_s AS share
FROM evenkeel.engine_steps
WHERE $__timeFilter(engine_steps.time)
  AND held_by != ''
  AND $__conditionalAll(model IN (${model:sqlstring}), $model)
GROUP BY time, held_by
ORDER BY time, held_by
