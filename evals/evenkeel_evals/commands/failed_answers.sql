-- Answers that a live evaluation or a person found bad, newest first: one row per trace, with all
-- reasons. `review` is the latest decision of a person; rejected ones are left out.
SELECT
    trace_id, groupUniqArrayIf(why, why != '') AS reasons,
    argMaxIf(better, time, isNotNull(better)) AS corrected,
    argMaxIf(decision, time, decision != '') AS review
FROM (
    SELECT trace_id, time, concat(scorer, ': ', ifNull(reason, 'wrong')) AS why,
        CAST(NULL AS Nullable(String)) AS better, '' AS decision
    FROM evenkeel.live_evaluations
    WHERE label = 'wrong' AND time >= fromUnixTimestamp64Nano({since_ns:Int64})
    UNION ALL
    SELECT trace_id, time,
        if(decision = '', concat('person: ', coalesce(comment, label, 'bad')), '') AS why, corrected AS better,
        if(ifNull(label, '') IN ('golden', 'not golden'), toString(assumeNotNull(label)), '') AS decision
    FROM evenkeel.feedback
    WHERE (score < 0.5 OR isNotNull(corrected) OR label = 'not golden')
        AND time >= fromUnixTimestamp64Nano({since_ns:Int64})
)
GROUP BY trace_id
HAVING review != 'not golden'
ORDER BY max(time) DESC, trace_id
LIMIT {limit:UInt32}
