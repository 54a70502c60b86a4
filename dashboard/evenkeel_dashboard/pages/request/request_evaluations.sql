-- Evaluations and feedback of one request, by trace id or request id.
SELECT
    toUnixTimestamp64Milli(Timestamp) AS time_ms,
    SpanName AS name,
    SpanAttributes['gen_ai.evaluation.name'] AS scorer,
    toFloat64OrNull(SpanAttributes['gen_ai.evaluation.score.value']) AS score,
    SpanAttributes['gen_ai.evaluation.score.label'] AS label,
    SpanAttributes['gen_ai.evaluation.explanation'] AS explanation,
    SpanAttributes['evenkeel.feedback.author'] AS author
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND (TraceId = {trace_id:String} OR SpanAttributes['evenkeel.request.id'] = {request_id:String})
    AND (startsWith(SpanName, 'evenkeel.evaluation') OR SpanName = 'evenkeel.feedback')
ORDER BY Timestamp
LIMIT 50
