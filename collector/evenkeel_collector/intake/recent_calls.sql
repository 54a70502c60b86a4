-- Events of the past hour that describe a request and have a span's ids.
SELECT toUnixTimestamp64Nano(Timestamp) AS time_ns, TraceId, SpanId, LogAttributes, ResourceAttributes
FROM logs
WHERE TimestampTime > now() - INTERVAL 1 HOUR AND TraceId != '' AND SpanId != ''
    AND (EventName = {event:String} OR LogAttributes['event.name'] = {event:String})
