-- Each side of one run by slice: mean score of scored answers, and the number of unscored ones.
SELECT
    arrayJoin(arrayConcat([''], e.tags)) AS slice,
    ifNull(e.side, '') AS side,
    ifNull(e.name, '') AS scorer,
    avgOrNull(e.score) AS mean_score,
    count(e.score) AS num_scored,
    countIf(isNull(e.score)) AS num_unscored,
    quantileExactInclusiveOrNull(0.5)(e.client_ttft_s) AS client_ttft_p50_s,
    quantileExactInclusiveOrNull(0.95)(e.client_e2e_s) AS client_e2e_p95_s
FROM evenkeel.eval_results AS e
WHERE e.kind = 'answer' AND e.run_id = {run_id:String}
GROUP BY slice, side, scorer
ORDER BY slice != '', slice, scorer, side
