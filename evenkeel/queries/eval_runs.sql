-- Evaluation runs, the newest first: what was compared, how many items, and its gates' verdicts.
SELECT
    run_id,
    anyIf(e.dataset, isNotNull(e.dataset)) AS dataset,
    toUnixTimestamp64Milli(min(e.time)) AS started_ms,
    uniqExactIf(e.item_id, e.kind = 'answer') AS num_items,
    arraySort(groupUniqArrayIf(concat(ifNull(e.side, '?'), ': ', ifNull(e.prompt_name, 'no prompt'),
        '@', ifNull(e.prompt_version, '?'), ', ', ifNull(e.model, 'no model')),
        e.kind = 'answer')) AS sides,
    groupArrayIf(ifNull(e.verdict, ''), e.kind = 'gate' AND isNotNull(e.gate)) AS verdicts,
    groupArrayIf(ifNull(e.slice, ''), e.kind = 'gate' AND isNotNull(e.gate)) AS slices
FROM evenkeel.eval_results AS e
WHERE isNotNull(e.run_id)
GROUP BY e.run_id AS run_id
ORDER BY started_ms DESC
LIMIT 50
