-- The gates of one run: all items first, then by slice, each with its interval and verdict.
SELECT
    ifNull(gate, '') AS gate, ifNull(slice, '') AS slice, ifNull(verdict, '') AS verdict,
    estimate, lower, upper, num_pairs, explanation
FROM evenkeel.eval_results
WHERE kind = 'gate' AND run_id = {run_id:String} AND isNotNull(gate)
ORDER BY slice NOT IN ('', 'overall'), slice, gate
