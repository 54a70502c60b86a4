-- The last hour's events that describe a request and have the ids of a span of their tenant that is not there
-- (an event or a span without a tenant may be of any). It ends with the newest event: after a stop of any
-- length, what was awaited before it is found.
WITH
    (SELECT max(TimestampTime) FROM logs WHERE TimestampTime <= now() + INTERVAL 1 MINUTE) AS newest,
    events AS (
        SELECT toUnixTimestamp64Nano(Timestamp) AS time_ns, TraceId, SpanId, LogAttributes, ResourceAttributes,
            if(LogAttributes['evenkeel.tenant'] != '', LogAttributes['evenkeel.tenant'],
                ResourceAttributes['evenkeel.tenant']) AS tenant
        FROM logs
        WHERE TimestampTime > newest - INTERVAL 1 HOUR
            AND replaceAll(TraceId, '0', '') != '' AND replaceAll(SpanId, '0', '') != ''
            AND (EventName = {event:String} OR LogAttributes['event.name'] = {event:String}
                OR Body = {event:String})
    ),
    there AS (
        SELECT TraceId, SpanId,
            if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
                ResourceAttributes['evenkeel.tenant']) AS tenant
        FROM spans
        WHERE TraceId IN (SELECT TraceId FROM events)
    )
SELECT time_ns, TraceId, SpanId, LogAttributes, ResourceAttributes
FROM events
WHERE (TraceId, SpanId, tenant) NOT IN (SELECT TraceId, SpanId, tenant FROM there)
    AND (TraceId, SpanId) NOT IN (SELECT TraceId, SpanId FROM there WHERE tenant = '')
    AND (tenant != '' OR (TraceId, SpanId) NOT IN (SELECT TraceId, SpanId FROM there))
ORDER BY time_ns
LIMIT {limit:UInt32}
