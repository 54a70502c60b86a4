-- Results of regenerating a request's answer without drafts: at most one for a sampled request.
SELECT
    SpanAttributes['evenkeel.canary.result'] AS result,
    toUInt32OrNull(SpanAttributes['evenkeel.canary.differs_at']) AS differs_at
FROM spans
WHERE Timestamp >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND Timestamp < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND SpanName = 'evenkeel.speculation.canary'
    AND SpanAttributes['evenkeel.request.id'] = {request_id:String}
LIMIT 1
