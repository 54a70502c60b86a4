-- The steps of engines: one row a run of consecutive steps that did the same work for the same requests.
-- Filled from the spans in which the runtime sends them, each column one list.

CREATE TABLE IF NOT EXISTS engine_steps (
    time DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    duration_s Float64 CODEC(ZSTD(1)),
    busy_s Float64 CODEC(ZSTD(1)),
    longest_s Float64 CODEC(ZSTD(1)),
    service LowCardinality(String),
    instance LowCardinality(String),
    engine UInt16,
    model LowCardinality(String),
    num_steps UInt32,
    batch_size UInt32,
    num_running UInt32,
    num_waiting UInt32,
    num_set_aside UInt32,
    held_by LowCardinality(String),
    prefill_tokens UInt32,
    decode_tokens UInt32,
    drafted_tokens UInt32,
    accepted_tokens UInt32,
    emitted_tokens UInt32,
    num_preempted UInt32,
    blocks_live UInt32,
    blocks_resident UInt32,
    blocks_total UInt32,
    prefilling_request_id Array(String) CODEC(ZSTD(1)),
    prefilling_tokens Array(UInt32)
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (model, service, instance, engine, time)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

-- Lists that are too short are filled up, so that no span of anybody can make an insert fail.
CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_engine_steps TO engine_steps AS
SELECT
    Timestamp + toIntervalNanosecond(toInt64(start_s * 1e9)) AS time,
    duration_s,
    busy_s,
    longest_s,
    ServiceName AS service,
    instance,
    engine,
    model,
    num_steps,
    num_batched AS batch_size,
    num_running,
    num_waiting,
    num_set_aside,
    held_by,
    prefill_tokens,
    decode_tokens,
    drafted_tokens,
    accepted_tokens,
    emitted_tokens,
    num_preempted,
    blocks_live,
    blocks_resident,
    blocks_total,
    arrayFilter((name, run) -> run = place - 1, names, runs_of_names) AS prefilling_request_id,
    arrayFilter((tokens, run) -> run = place - 1, tokens_of_names, runs_of_names) AS prefilling_tokens
FROM (
    WITH
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(Float64)'))
            AS seconds,
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(UInt32)'))
            AS counts,
        (name -> arrayResize(seconds(name), length(all_start_s))) AS filled_seconds,
        (name -> arrayResize(counts(name), length(all_start_s))) AS filled_counts
    SELECT
        Timestamp,
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        toUInt16OrZero(SpanAttributes['evenkeel.engine.index']) AS engine,
        SpanAttributes['gen_ai.request.model'] AS model,
        seconds('start_s') AS all_start_s,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.held_by'], 'Array(String)'),
            length(all_start_s)) AS all_held_by,
        counts('prefilling_run') AS runs_of_names,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.prefilling_id'], 'Array(String)'),
            length(runs_of_names)) AS names,
        arrayResize(counts('prefilling_tokens'), length(runs_of_names)) AS tokens_of_names,
        filled_seconds('duration_s') AS all_duration_s,
        filled_seconds('busy_s') AS all_busy_s,
        filled_seconds('longest_s') AS all_longest_s,
        filled_counts('num_steps') AS all_num_steps,
        filled_counts('num_batched') AS all_num_batched,
        filled_counts('num_running') AS all_num_running,
        filled_counts('num_waiting') AS all_num_waiting,
        filled_counts('num_set_aside') AS all_num_set_aside,
        filled_counts('prefill_tokens') AS all_prefill_tokens,
        filled_counts('decode_tokens') AS all_decode_tokens,
        filled_counts('drafted_tokens') AS all_drafted_tokens,
        filled_counts('accepted_tokens') AS all_accepted_tokens,
        filled_counts('emitted_tokens') AS all_emitted_tokens,
        filled_counts('num_preempted') AS all_num_preempted,
        filled_counts('blocks_live') AS all_blocks_live,
        filled_counts('blocks_resident') AS all_blocks_resident,
        filled_counts('blocks_total') AS all_blocks_total
    FROM spans
    WHERE SpanName = 'evenkeel.engine.steps'
)
ARRAY JOIN
    arrayEnumerate(all_start_s) AS place,
    all_start_s AS start_s,
    all_held_by AS held_by,
    all_duration_s AS duration_s,
    all_busy_s AS busy_s,
    all_longest_s AS longest_s,
    all_num_steps AS num_steps,
    all_num_batched AS num_batched,
    all_num_running AS num_running,
    all_num_waiting AS num_waiting,
    all_num_set_aside AS num_set_aside,
    all_prefill_tokens AS prefill_tokens,
    all_decode_tokens AS decode_tokens,
    all_drafted_tokens AS drafted_tokens,
    all_accepted_tokens AS accepted_tokens,
    all_emitted_tokens AS emitted_tokens,
    all_num_preempted AS num_preempted,
    all_blocks_live AS blocks_live,
    all_blocks_resident AS blocks_resident,
    all_blocks_total AS blocks_total;
