-- Each side of one run by slice: mean score of the scored items, each with the mean of its repeats as in the
-- gates, and the number of unscored answers. A tag that would be taken for all items is named as in the gates.
SELECT
    arrayJoin(arrayConcat([''], arrayMap(
        tag -> if(match(tag, '^(tag:)*(overall|all)?$'), concat('tag:', tag), tag), tags))) AS slice,
    side,
    scorer,
    avgOrNull(item_score) AS mean_score,
    sum(scored) AS num_scored,
    sum(unscored) AS num_unscored,
    quantileExactInclusiveOrNullArray(0.5)(ttfts_s) AS client_ttft_p50_s,
    quantileExactInclusiveOrNullArray(0.95)(e2es_s) AS client_e2e_p95_s
FROM
(
    SELECT
        ifNull(e.side, '') AS side,
        ifNull(e.name, '') AS scorer,
        any(e.tags) AS tags,
        avgOrNull(e.score) AS item_score,
        count(e.score) AS scored,
        countIf(isNull(e.score)) AS unscored,
        groupArray(e.client_ttft_s) AS ttfts_s,
        groupArray(e.client_e2e_s) AS e2es_s
    FROM evenkeel.eval_results AS e
    WHERE e.kind = 'answer' AND e.run_id = {run_id:String}
    GROUP BY side, scorer, coalesce(e.item_id, e.span_id)
)
GROUP BY slice, side, scorer
ORDER BY slice != '', slice, scorer, side
