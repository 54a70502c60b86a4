-- Log records and events of one trace in order, with the names of the spans in which they were written. Texts
-- are cut: some senders log whole documents.
SELECT
    toUnixTimestamp64Nano(record.Timestamp) AS time_ns,
    record.SeverityText AS severity,
    record.SeverityNumber AS severity_number,
    record.ServiceName AS service,
    if(record.EventName != '', record.EventName, record.LogAttributes['event.name']) AS event,
    substringUTF8(record.Body, 1, 500) AS body,
    mapApply((key, text) -> (key, substringUTF8(text, 1, 100)), record.LogAttributes) AS attributes,
    substringUTF8(span.SpanName, 1, 200) AS span
FROM evenkeel.logs AS record
GLOBAL LEFT ANY JOIN (
    SELECT SpanId, SpanName
    FROM evenkeel.spans
    WHERE TraceId = {trace_id:String}
        AND Timestamp BETWEEN fromUnixTimestamp64Milli({from_ms:Int64})
            AND fromUnixTimestamp64Milli({to_ms:Int64})
) AS span ON span.SpanId = record.SpanId
WHERE record.TraceId = {trace_id:String}
    AND record.TimestampTime BETWEEN toDateTime(intDiv({from_ms:Int64}, 1000))
        AND toDateTime(intDiv({to_ms:Int64}, 1000))
ORDER BY record.Timestamp
LIMIT 201
