-- The 50 newest evaluation runs, newest first; if the wanted one is older, it is the last of them: the
-- comparison, number of items, and each run's own verdict. Only gate rows carry the verdict and there are
-- few, so the long attributes of answers are not read.
SELECT
    r.run_id AS run_id, r.dataset AS dataset, r.started_ms AS started_ms,
    r.num_items AS num_items, r.sides AS sides, r.num_gates AS num_gates,
    s.run_verdicts AS run_verdicts, s.headlines AS headlines, s.baseline_texts AS baseline_texts,
    s.candidate_texts AS candidate_texts, s.other_changes AS other_changes
FROM
(
    SELECT
        assumeNotNull(e.run_id) AS run_id,
        anyIf(e.dataset, isNotNull(e.dataset)) AS dataset,
        toUnixTimestamp64Milli(min(e.time)) AS started_ms,
        uniqExactIf(e.item_id, e.kind = 'answer') AS num_items,
        arraySort(groupUniqArrayIf(concat(ifNull(e.side, '?'), ': ',
            ifNull(e.prompt_name, 'no prompt'), '@', ifNull(e.prompt_version, '?'), ', ',
            ifNull(e.model, 'no model')), e.kind = 'answer')) AS sides,
        countIf(e.kind = 'gate' AND isNotNull(e.gate)) AS num_gates
    FROM evenkeel.eval_results AS e
    WHERE isNotNull(e.run_id)
    GROUP BY run_id
    ORDER BY run_id = {run_id:String} DESC, started_ms DESC
    LIMIT 50
) AS r
LEFT JOIN
(
    SELECT
        assumeNotNull(g.run_id) AS run_id,
        groupUniqArrayIf(g.attributes['evenkeel.eval.run_verdict'],
            g.attributes['evenkeel.eval.run_verdict'] != '') AS run_verdicts,
        groupUniqArrayIf(g.attributes['evenkeel.eval.run_headline'],
            g.attributes['evenkeel.eval.run_headline'] != '') AS headlines,
        groupUniqArrayIf(g.attributes['evenkeel.eval.baseline_text'],
            g.attributes['evenkeel.eval.baseline_text'] != '') AS baseline_texts,
        groupUniqArrayIf(g.attributes['evenkeel.eval.candidate_text'],
            g.attributes['evenkeel.eval.candidate_text'] != '') AS candidate_texts,
        groupUniqArrayIf(g.attributes['evenkeel.eval.other_changes'],
            g.attributes['evenkeel.eval.other_changes'] != '') AS other_changes
    FROM evenkeel.eval_results AS g
    WHERE g.kind = 'gate' AND isNotNull(g.run_id)
    GROUP BY run_id
) AS s ON s.run_id = r.run_id
ORDER BY started_ms DESC
