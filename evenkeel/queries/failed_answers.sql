-- Answers that a live evaluation or a person found bad, one row a trace, with every reason.
SELECT trace_id, groupUniqArray(why) AS reasons, max(better) AS corrected
FROM (
    SELECT trace_id, concat(scorer, ': ', ifNull(reason, 'wrong')) AS why, CAST(NULL AS Nullable(String)) AS better
    FROM evenkeel.live_evaluations
    WHERE label = 'wrong' AND time >= fromUnixTimestamp64Nano({since_ns:Int64})
    UNION ALL
    SELECT trace_id, concat('person: ', coalesce(comment, label, 'bad')) AS why, corrected AS better
    FROM evenkeel.feedback
    WHERE (score < 0.5 OR isNotNull(corrected)) AND time >= fromUnixTimestamp64Nano({since_ns:Int64})
)
GROUP BY trace_id
ORDER BY trace_id
