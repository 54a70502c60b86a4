-- Items of one run that its two sides scored differently, lost ones first.
SELECT
    item_id,
    scorer,
    anyIf(e.score, e.side = 'A') AS score_a,
    anyIf(e.score, e.side = 'B') AS score_b,
    anyIf(e.label, e.side = 'A') AS label_a,
    anyIf(e.label, e.side = 'B') AS label_b,
    anyIf(e.explanation, e.side = 'A') AS explanation_a,
    anyIf(e.explanation, e.side = 'B') AS explanation_b,
    anyIf(e.trace_id, e.side = 'A') AS trace_a,
    anyIf(e.trace_id, e.side = 'B') AS trace_b,
    any(e.tags) AS tags,
    toUnixTimestamp64Nano(min(e.time)) AS first_ns,
    toUnixTimestamp64Nano(max(e.time)) AS last_ns,
    count() OVER () AS num_changed,
    countIf(score_b < score_a) OVER () AS num_lost
FROM evenkeel.eval_results AS e
WHERE e.kind = 'answer' AND e.run_id = {run_id:String} AND isNotNull(e.item_id)
GROUP BY e.item_id AS item_id, e.name AS scorer
HAVING isNotNull(score_a) AND isNotNull(score_b) AND score_a != score_b
ORDER BY score_b - score_a, item_id
LIMIT {limit:UInt32}
