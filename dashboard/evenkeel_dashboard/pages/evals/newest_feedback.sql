-- Feedback on answers within a range, newest first, including reviews.
SELECT
    toUnixTimestamp64Milli(time) AS time_ms, trace_id, score, label, comment, corrected, author, tenant,
    count() OVER () AS num_judgements,
    countIf(score >= 0.5) OVER () AS num_good,
    countIf(score < 0.5) OVER () AS num_bad
FROM feedback
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
ORDER BY time DESC, trace_id
LIMIT {limit:UInt32}
