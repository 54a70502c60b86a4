-- Verdicts of evaluation gates, newest first.
SELECT time, run_id, dataset, gate, slice, verdict, estimate, lower, upper, num_pairs
FROM evenkeel.eval_results
WHERE kind = 'gate' AND $__timeFilter(time)
ORDER BY time DESC
LIMIT 100
