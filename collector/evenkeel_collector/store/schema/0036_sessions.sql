-- Sessions: the requests and tool calls of one conversation or one run of an agent (docs/guide/sessions.md).
-- A session is a tenant and an ID; requests and tool calls that have only a trace are in the session that
-- names the trace, or in one named after it. Everything is a sum, a minimum, a maximum or a union, so late
-- spans are counted like all others and no row is ever changed.
-- Our own spans say where their session is from; others' have it in an attribute, or only a trace.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS session_source LowCardinality(Nullable(String))
    DEFAULT multiIf(source = 'evenkeel', if(isNull(session_id), NULL, 'header'),
        isNotNull(session_id), 'attribute', trace_id != '', 'trace', NULL);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS parent_span_id Nullable(String);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS recompute_s Nullable(Float64);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS prefix_evicted_s Nullable(Float64);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS cost Nullable(Float64);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS currency LowCardinality(Nullable(String));

ALTER TABLE requests ADD INDEX IF NOT EXISTS idx_session_id session_id TYPE bloom_filter(0.001) GRANULARITY 1;

-- One row per session, kind of work and day. `busy` is the union of the work's intervals in nanoseconds,
-- `source` where the ID is from: 1 a header, 2 an attribute, 3 a trace, 4 a chain of prompts. If `is_trace`,
-- `session_id` is a trace.
CREATE TABLE IF NOT EXISTS session_parts (
    tenant LowCardinality(String),
    session_id String,
    kind LowCardinality(String),
    is_trace Bool,
    day Date,
    source SimpleAggregateFunction(min, UInt8),
    start SimpleAggregateFunction(min, DateTime64(9, 'UTC')),
    end SimpleAggregateFunction(max, DateTime64(9, 'UTC')),
    busy AggregateFunction(intervalLengthSum, Int64, Int64),
    num SimpleAggregateFunction(sum, UInt64),
    num_ok SimpleAggregateFunction(sum, UInt64),
    num_error SimpleAggregateFunction(sum, UInt64),
    num_aborted SimpleAggregateFunction(sum, UInt64),
    num_shed SimpleAggregateFunction(sum, UInt64),
    input_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    output_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    cached_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    wasted_tokens SimpleAggregateFunction(sum, Nullable(UInt64)),
    sum_s SimpleAggregateFunction(sum, Float64),
    queue_s SimpleAggregateFunction(sum, Float64),
    prefill_s SimpleAggregateFunction(sum, Float64),
    decode_s SimpleAggregateFunction(sum, Float64),
    recompute_s SimpleAggregateFunction(sum, Nullable(Float64)),
    num_evicted SimpleAggregateFunction(sum, UInt64),
    cost SimpleAggregateFunction(sum, Nullable(Float64)),
    currency SimpleAggregateFunction(max, String),
    model SimpleAggregateFunction(max, String),
    slo_class SimpleAggregateFunction(max, String),
    route SimpleAggregateFunction(max, String),
    last_status AggregateFunction(argMax, String, DateTime64(9, 'UTC'))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(day)
ORDER BY (tenant, session_id, kind, is_trace, day)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    index_granularity = 8192, merge_selector_base = 12;

-- Which session names a trace. Work without a tenant (`as_tenant` = '') joins the trace's session too.
CREATE TABLE IF NOT EXISTS session_traces (
    tenant LowCardinality(String),
    session_id String,
    as_tenant LowCardinality(String),
    trace_id String,
    day Date
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(day)
ORDER BY (session_id, tenant, trace_id, as_tenant, day)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    index_granularity = 8192, merge_selector_base = 12;

-- One row per call of a tool or of an agent.
CREATE TABLE IF NOT EXISTS session_tools (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    tenant LowCardinality(String),
    session_id String,
    is_trace Bool,
    kind LowCardinality(String),
    name LowCardinality(String),
    duration_s Float64,
    status LowCardinality(String),
    service LowCardinality(String),
    trace_id String,
    span_id String,
    parent_span_id String
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (session_id, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1,
    index_granularity = 8192, merge_selector_base = 12;

-- Behind a filter, as what others trace (docs/decisions/0175).
CREATE TABLE IF NOT EXISTS session_spans (
    Timestamp DateTime64(9),
    TraceId String,
    SpanId String,
    ParentSpanId String,
    SpanName LowCardinality(String),
    ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String),
    Duration UInt64,
    StatusCode LowCardinality(String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_session_spans TO session_spans AS
SELECT Timestamp, TraceId, SpanId, ParentSpanId, SpanName, ServiceName, ResourceAttributes, SpanAttributes,
    Duration, StatusCode
FROM spans
WHERE NOT startsWith(SpanName, 'evenkeel.') AND SpanAttributes['evenkeel.status'] = ''
    AND (SpanAttributes['gen_ai.operation.name'] IN ('execute_tool', 'invoke_agent')
        OR SpanAttributes['openinference.span.kind'] IN ('TOOL', 'AGENT')
        OR SpanAttributes['traceloop.span.kind'] IN ('tool', 'agent')
        OR SpanAttributes['langfuse.observation.type'] IN ('tool', 'agent'));

CREATE MATERIALIZED VIEW IF NOT EXISTS session_spans_to_session_tools TO session_tools AS
WITH
    (keys -> SpanAttributes[arrayFirst(key -> SpanAttributes[key] != '', keys)]) AS first_of,
    first_of(['gen_ai.conversation.id', 'session.id', 'langfuse.session.id',
        'traceloop.association.properties.session_id', 'traceloop.association.properties.conversation_id',
        'langsmith.trace.session_id', 'langsmith.metadata.session_id', 'mlflow.trace.session']) AS said,
    if(length(said) > 256, concat('long-', lower(hex(sipHash128(said)))), said) AS own,
    if(SpanAttributes['gen_ai.operation.name'] = 'invoke_agent'
        OR SpanAttributes['openinference.span.kind'] = 'AGENT'
        OR SpanAttributes['traceloop.span.kind'] = 'agent'
        OR SpanAttributes['langfuse.observation.type'] = 'agent', 'agent', 'tool') AS called
SELECT
    Timestamp AS time,
    if(SpanAttributes['evenkeel.tenant'] != '', SpanAttributes['evenkeel.tenant'],
        ResourceAttributes['evenkeel.tenant']) AS tenant,
    if(own = '', TraceId, own) AS session_id,
    own = '' AS is_trace,
    called AS kind,
    substringUTF8(if(called = 'agent',
        if(first_of(['gen_ai.agent.name', 'agent.name', 'traceloop.entity.name']) != '',
            first_of(['gen_ai.agent.name', 'agent.name', 'traceloop.entity.name']), SpanName),
        if(first_of(['gen_ai.tool.name', 'tool.name', 'traceloop.entity.name']) != '',
            first_of(['gen_ai.tool.name', 'tool.name', 'traceloop.entity.name']), SpanName)), 1, 128) AS name,
    Duration / 1e9 AS duration_s,
    if(StatusCode = 'Error', 'error', 'ok') AS status,
    ServiceName AS service,
    TraceId AS trace_id,
    SpanId AS span_id,
    ParentSpanId AS parent_span_id
FROM session_spans
WHERE TraceId != '' OR own != '';

CREATE MATERIALIZED VIEW IF NOT EXISTS session_tools_to_session_parts TO session_parts AS
SELECT
    tenant,
    session_id,
    kind,
    is_trace,
    toDate(time) AS day,
    min(if(is_trace, 3, 2)) AS source,
    min(time) AS start,
    max(fromUnixTimestamp64Nano(end_ns, 'UTC')) AS end,
    intervalLengthSumState(toUnixTimestamp64Nano(time), end_ns) AS busy,
    count() AS num,
    countIf(status = 'ok') AS num_ok,
    countIf(status = 'error') AS num_error,
    sum(duration_s) AS sum_s
FROM (
    SELECT *, toUnixTimestamp64Nano(time) + toInt64(least(duration_s, 1e6) * 1e9) AS end_ns
    FROM session_tools
)
GROUP BY tenant, session_id, kind, is_trace, day;

CREATE MATERIALIZED VIEW IF NOT EXISTS session_tools_to_session_traces TO session_traces AS
SELECT
    tenant,
    session_id,
    arrayJoin(arrayDistinct([toString(tenant), ''])) AS as_tenant,
    trace_id,
    toDate(min(time)) AS day
FROM session_tools
WHERE NOT is_trace AND trace_id != ''
GROUP BY tenant, session_id, as_tenant, trace_id;

-- Requests of others that have no session of their own are in that of their trace.
CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_session_parts TO session_parts AS
SELECT
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.session_id, requests.trace_id) AS session_id,
    'request' AS kind,
    isNull(requests.session_id) OR ifNull(requests.session_source = 'trace', 0) AS is_trace,
    toDate(time) AS day,
    min(multiIf(isNull(requests.session_id), 3, requests.session_source = 'trace', 3,
        requests.session_source = 'chain', 4, requests.session_source = 'attribute', 2,
        requests.source = 'evenkeel', 1, 2)) AS source,
    min(time) AS start,
    max(fromUnixTimestamp64Nano(end_ns, 'UTC')) AS end,
    intervalLengthSumState(toUnixTimestamp64Nano(time), end_ns) AS busy,
    count() AS num,
    countIf(status = 'ok') AS num_ok,
    countIf(status = 'error') AS num_error,
    countIf(status = 'aborted') AS num_aborted,
    countIf(status = 'shed') AS num_shed,
    sum(requests.input_tokens) AS input_tokens,
    sum(requests.output_tokens) AS output_tokens,
    sum(requests.cached_tokens) AS cached_tokens,
    sum(requests.wasted_tokens) AS wasted_tokens,
    sum(ifNull(e2e_s, 0)) AS sum_s,
    sum(ifNull(requests.queue_s, 0)) AS queue_s,
    sum(ifNull(requests.prefill_s, 0)) AS prefill_s,
    sum(ifNull(requests.decode_s, 0)) AS decode_s,
    sum(requests.recompute_s) AS recompute_s,
    countIf(requests.recompute_s > 0) AS num_evicted,
    sum(requests.cost) AS cost,
    max(ifNull(requests.currency, '')) AS currency,
    max(requests.model) AS model,
    max(ifNull(requests.slo_class, '')) AS slo_class,
    max(ifNull(requests.route, '')) AS route,
    argMaxState(CAST(status, 'String'), fromUnixTimestamp64Nano(end_ns, 'UTC')) AS last_status
FROM (
    SELECT *, toUnixTimestamp64Nano(time) + toInt64(ifNull(e2e_s, 0) * 1e9) AS end_ns
    FROM requests
    WHERE isNotNull(session_id) OR (source != 'evenkeel' AND trace_id != '')
) AS requests
GROUP BY tenant, session_id, kind, is_trace, day;

-- Only a trace that the caller began can have other spans.
CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_session_traces TO session_traces AS
SELECT
    ifNull(requests.tenant, '') AS tenant,
    assumeNotNull(requests.session_id) AS session_id,
    arrayJoin(arrayDistinct([ifNull(requests.tenant, ''), ''])) AS as_tenant,
    trace_id,
    toDate(min(time)) AS day
FROM (
    SELECT *
    FROM requests
    WHERE isNotNull(session_id) AND NOT ifNull(session_source = 'trace', 0)
        AND (source != 'evenkeel' OR isNotNull(parent_span_id))
) AS requests
GROUP BY tenant, session_id, as_tenant, trace_id;

-- The parts under the session that they belong to.
CREATE VIEW IF NOT EXISTS session_parts_named AS
SELECT * FROM session_parts WHERE NOT is_trace
UNION ALL
SELECT parts.* REPLACE (
    if(names.name.2 = '', parts.tenant, names.name.1) AS tenant,
    if(names.name.2 = '', parts.session_id, names.name.2) AS session_id,
    if(names.name.2 = '', parts.source, toUInt8(least(parts.source, 2))) AS source)
FROM (SELECT * FROM session_parts WHERE is_trace) AS parts
LEFT JOIN (
    SELECT trace_id, as_tenant, min((CAST(tenant, 'String'), session_id)) AS name
    FROM session_traces
    WHERE trace_id GLOBAL IN (SELECT session_id FROM session_parts WHERE is_trace)
    GROUP BY trace_id, as_tenant
) AS names ON names.trace_id = parts.session_id AND names.as_tenant = parts.tenant;

-- One row per session. A session is open until 30 minutes have passed without a request or a tool call
-- (evenkeel/sessions/session.py). The ledger's seconds add up to e2e_s: the time during which the model
-- worked, divided as its requests' own seconds are; then that of tools alone; the rest is the client's.
CREATE VIEW IF NOT EXISTS sessions AS
SELECT
    session_id,
    tenant,
    ['header', 'attribute', 'trace', 'chain'][found] AS session_source,
    CAST(began, 'DateTime64(9, \'UTC\')') AS start,
    CAST(ended, 'DateTime64(9, \'UTC\')') AS end,
    end > now64(9, 'UTC') - toIntervalMinute(30) AS is_open,
    num_requests,
    num_ok,
    num_error,
    num_aborted,
    num_shed,
    num_tools,
    num_tool_errors,
    num_agents,
    num_evicted,
    input_tokens,
    output_tokens,
    cached_tokens,
    wasted_tokens,
    (toUnixTimestamp64Nano(end) - toUnixTimestamp64Nano(start)) / 1e9 AS e2e_s,
    model_ns / 1e9 AS model_s,
    (busy_ns - model_ns) / 1e9 AS tool_s,
    greatest(0, e2e_s - busy_ns / 1e9) AS client_s,
    recompute_sum_s * share AS recompute_s,
    map('model.queue', queue_sum_s * share,
        'model.prefill', greatest(0, prefill_sum_s - ifNull(recompute_sum_s, 0)) * share,
        'model.recompute', ifNull(recompute_sum_s, 0) * share,
        'model.decode', decode_sum_s * share,
        'model.other', greatest(0, model_s - (queue_sum_s + greatest(prefill_sum_s,
            ifNull(recompute_sum_s, 0)) + decode_sum_s) * share),
        'tool', tool_s,
        'client', client_s) AS ledger,
    cost,
    nullIf(currency_name, '') AS currency,
    model_name AS model,
    nullIf(slo_class_name, '') AS slo_class,
    nullIf(route_name, '') AS route,
    last_status
FROM (
    SELECT
        tenant,
        session_id,
        min(source) AS found,
        minIf(start, kind != 'agent') AS began,
        maxIf(end, kind != 'agent') AS ended,
        intervalLengthSumMergeIf(busy, kind = 'request') AS model_ns,
        intervalLengthSumMergeIf(busy, kind != 'agent') AS busy_ns,
        sumIf(num, kind = 'request') AS num_requests,
        sumIf(num, kind = 'tool') AS num_tools,
        sumIf(num, kind = 'agent') AS num_agents,
        sumIf(session_parts_named.num_ok, kind = 'request') AS num_ok,
        sumIf(session_parts_named.num_error, kind = 'request') AS num_error,
        sumIf(session_parts_named.num_error, kind = 'tool') AS num_tool_errors,
        sum(session_parts_named.num_aborted) AS num_aborted,
        sum(session_parts_named.num_shed) AS num_shed,
        sum(session_parts_named.num_evicted) AS num_evicted,
        sum(session_parts_named.input_tokens) AS input_tokens,
        sum(session_parts_named.output_tokens) AS output_tokens,
        sum(session_parts_named.cached_tokens) AS cached_tokens,
        sum(session_parts_named.wasted_tokens) AS wasted_tokens,
        sumIf(sum_s, kind = 'request') AS request_sum_s,
        sum(queue_s) AS queue_sum_s,
        sum(prefill_s) AS prefill_sum_s,
        sum(decode_s) AS decode_sum_s,
        sum(session_parts_named.recompute_s) AS recompute_sum_s,
        if(request_sum_s > 0, model_ns / 1e9 / greatest(request_sum_s,
            queue_sum_s + greatest(prefill_sum_s, ifNull(recompute_sum_s, 0)) + decode_sum_s), 0) AS share,
        sum(session_parts_named.cost) AS cost,
        max(currency) AS currency_name,
        max(model) AS model_name,
        max(slo_class) AS slo_class_name,
        max(route) AS route_name,
        argMaxMerge(session_parts_named.last_status) AS last_status
    FROM session_parts_named
    GROUP BY tenant, session_id
    HAVING num_requests > 0
);

-- The requests, tool calls and agents of one session, in order: of its ID, and of the traces that it names.
CREATE VIEW IF NOT EXISTS session_turns AS
WITH
    traces AS (
        SELECT trace_id FROM session_traces
        WHERE session_id = {session_id:String} AND tenant = {tenant:String}
    ),
    (
        SELECT (min(start), max(end))
        FROM session_parts
        WHERE tenant IN ({tenant:String}, '') AND (session_id = {session_id:String} OR session_id GLOBAL IN traces)
    ) AS bounds
SELECT
    'request' AS kind,
    time AS start,
    time + toIntervalNanosecond(toInt64(ifNull(e2e_s, 0) * 1e9)) AS end,
    ifNull(e2e_s, 0) AS duration_s,
    CAST(model, 'String') AS name,
    CAST(status, 'String') AS status,
    CAST(service, 'String') AS service,
    trace_id,
    span_id,
    ifNull(parent_span_id, '') AS parent_span_id,
    request_id,
    CAST(source, 'String') AS source,
    CAST(finish_reason, 'Nullable(String)') AS finish_reason,
    CAST(error_type, 'Nullable(String)') AS error_type,
    input_tokens,
    output_tokens,
    cached_tokens,
    ttft_s,
    queue_s,
    prefill_s,
    decode_s,
    recompute_s,
    prefix_evicted_s,
    cost,
    ledger
FROM requests
WHERE time BETWEEN bounds.1 AND bounds.2
    AND ifNull(tenant, '') IN ({tenant:String}, '')
    AND ((session_id = {session_id:String} AND ifNull(tenant, '') = {tenant:String})
        OR (ifNull(session_id, trace_id) GLOBAL IN traces))
UNION ALL
SELECT
    CAST(kind, 'String') AS kind,
    time AS start,
    time + toIntervalNanosecond(toInt64(least(duration_s, 1e6) * 1e9)) AS end,
    duration_s,
    CAST(name, 'String') AS name,
    CAST(status, 'String') AS status,
    CAST(service, 'String') AS service,
    trace_id,
    span_id,
    parent_span_id,
    '' AS request_id,
    '' AS source,
    NULL AS finish_reason,
    NULL AS error_type,
    NULL AS input_tokens,
    NULL AS output_tokens,
    NULL AS cached_tokens,
    NULL AS ttft_s,
    NULL AS queue_s,
    NULL AS prefill_s,
    NULL AS decode_s,
    NULL AS recompute_s,
    NULL AS prefix_evicted_s,
    NULL AS cost,
    CAST(map(), 'Map(LowCardinality(String), Float64)') AS ledger
FROM session_tools
WHERE tenant IN ({tenant:String}, '')
    AND ((session_id = {session_id:String} AND tenant = {tenant:String}) OR (is_trace AND session_id GLOBAL IN traces));
