-- Items of one run that its two sides scored differently, lost ones first. An item that was repeated counts
-- once, with its mean, as in the gates; shown are the answers that differ most.
WITH
    (ifNull(e.label, ''), ifNull(e.explanation, ''), e.trace_id) AS answer,
    assumeNotNull(e.score) AS known,
    isNotNull(e.score) AND e.side = 'A' AS is_a,
    isNotNull(e.score) AND e.side = 'B' AS is_b
SELECT
    item_id,
    scorer,
    avgOrNullIf(e.score, e.side = 'A') AS score_a,
    avgOrNullIf(e.score, e.side = 'B') AS score_b,
    if(score_b < score_a, argMaxIf(answer, known, is_a), argMinIf(answer, known, is_a)) AS shown_a,
    if(score_b < score_a, argMinIf(answer, known, is_b), argMaxIf(answer, known, is_b)) AS shown_b,
    shown_a.1 AS label_a, shown_b.1 AS label_b,
    shown_a.2 AS explanation_a, shown_b.2 AS explanation_b,
    shown_a.3 AS trace_a, shown_b.3 AS trace_b,
    any(e.tags) AS tags,
    toUnixTimestamp64Nano(min(e.time)) AS first_ns,
    toUnixTimestamp64Nano(max(e.time)) AS last_ns,
    count() OVER () AS num_changed,
    countIf(score_b < score_a) OVER () AS num_lost
FROM evenkeel.eval_results AS e
WHERE e.kind = 'answer' AND e.run_id = {run_id:String} AND isNotNull(e.item_id)
GROUP BY e.item_id AS item_id, e.name AS scorer
HAVING isNotNull(score_a) AND isNotNull(score_b) AND abs(score_a - score_b) > 1e-9
ORDER BY score_b - score_a, item_id
LIMIT {limit:UInt32}
