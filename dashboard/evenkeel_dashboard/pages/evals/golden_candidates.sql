-- Unreviewed answers that a live evaluation or a person found bad, newest first.
SELECT
    trace_id,
    toUnixTimestamp64Milli(max(time)) AS time_ms,
    arraySort(groupUniqArrayIf(why, why != '')) AS reasons,
    maxIf(better, isNotNull(better)) AS corrected,
    max(whose) AS tenant,
    count() OVER () AS num_waiting
FROM
(
    SELECT trace_id, time, concat(scorer, ': ', ifNull(reason, 'wrong')) AS why,
        CAST(NULL AS Nullable(String)) AS better, toString(ifNull(tenant, '')) AS whose, false AS is_review
    FROM live_evaluations
    WHERE label = 'wrong' AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    UNION ALL
    SELECT trace_id, time,
        if(label IN ('golden', 'not golden'), '', concat('person: ', coalesce(comment, label, 'bad'))) AS why,
        corrected AS better, toString(ifNull(tenant, '')) AS whose, ifNull(label IN ('golden', 'not golden'), false) AS is_review
    FROM feedback
    WHERE (score < 0.5 OR isNotNull(corrected) OR label = 'not golden')
        AND time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
)
GROUP BY trace_id
HAVING NOT max(is_review)
ORDER BY time_ms DESC, trace_id
LIMIT {limit:UInt32}
