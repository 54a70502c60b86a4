-- Answers regenerated without drafts, by result, and the newest that differed.
SELECT
    SpanAttributes['evenkeel.canary.result'] AS result,
    count() AS num_answers,
    sum(toUInt64OrZero(SpanAttributes['evenkeel.canary.tokens'])) AS num_tokens,
    argMax(SpanAttributes['evenkeel.request.id'], Timestamp) AS newest_id
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND SpanName = 'evenkeel.speculation.canary'
GROUP BY result
ORDER BY result
