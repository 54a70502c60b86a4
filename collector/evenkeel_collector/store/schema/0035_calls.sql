-- A call that its client, a gateway and the server trace is one request: requests that clients trace wait
-- here until it is known whether a record nearer to the server exists (call_settlement.py).
-- `held_requests.py` gives the tables the columns of `requests`, and puts them before it.

-- The parents of spans: what leads from a client's record to the server's.
CREATE TABLE IF NOT EXISTS span_parents (
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    parent_span_id String CODEC(ZSTD(1)),
    stored_at DateTime('UTC') DEFAULT now() CODEC(Delta, ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY toDate(stored_at)
ORDER BY (trace_id, span_id)
TTL stored_at + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1,
    fsync_after_insert = 1, fsync_part_directory = 1, merge_selector_base = 12;

-- Our own phases are never above a request.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_span_parents TO span_parents AS
SELECT TraceId AS trace_id, SpanId AS span_id, ParentSpanId AS parent_span_id
FROM spans
WHERE ParentSpanId != '' AND NOT startsWith(SpanName, 'evenkeel.');

-- All requests that others trace, on their way to `requests` or `held_requests`; nothing is kept.
CREATE TABLE IF NOT EXISTS requests_of_others (
    time DateTime64(9, 'UTC'),
    trace_id String,
    span_id String,
    request_id String,
    source LowCardinality(String)
)
ENGINE = Null;

-- Requests that clients trace, for a day.
CREATE TABLE IF NOT EXISTS held_requests (
    held_at DateTime64(3, 'UTC') DEFAULT now64(3) CODEC(Delta, ZSTD(1)),
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    request_id String CODEC(ZSTD(1)),
    source LowCardinality(String)
)
ENGINE = MergeTree
PARTITION BY toDate(held_at)
ORDER BY held_at
TTL toDateTime(held_at) + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1,
    fsync_after_insert = 1, fsync_part_directory = 1, merge_selector_base = 12;

-- What was decided of each: counted, or a view of another record of its call.
CREATE TABLE IF NOT EXISTS settled_requests (
    settled_at DateTime64(3, 'UTC') CODEC(Delta, ZSTD(1)),
    batch String CODEC(ZSTD(1)),
    held_from DateTime64(3, 'UTC'),
    held_to DateTime64(3, 'UTC'),
    trace_id String CODEC(ZSTD(1)),
    span_id String CODEC(ZSTD(1)),
    is_counted Bool
)
ENGINE = MergeTree
PARTITION BY toDate(settled_at)
ORDER BY settled_at
TTL toDateTime(settled_at) + INTERVAL 1 DAY
SETTINGS non_replicated_deduplication_window = 1000, ttl_only_drop_parts = 1,
    fsync_after_insert = 1, fsync_part_directory = 1;

-- Which of several collectors settles: the first to write a slot of ten seconds.
CREATE TABLE IF NOT EXISTS settlement_turns (
    slot UInt64,
    collector String,
    taken_at DateTime('UTC') DEFAULT now()
)
ENGINE = MergeTree
ORDER BY slot
TTL taken_at + INTERVAL 1 HOUR
SETTINGS non_replicated_deduplication_window = 1000;
