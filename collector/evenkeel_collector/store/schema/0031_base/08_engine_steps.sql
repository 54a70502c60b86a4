-- The steps of engines: one row per run of consecutive steps that did the same work for the same requests.
-- Filled from the spans in which the runtime sends them, each column one list.

-- Reached by few spans, as in 03_requests_of_others.sql.
CREATE TABLE IF NOT EXISTS step_spans (
    Timestamp DateTime64(9),
    ServiceName LowCardinality(String),
    ResourceAttributes Map(LowCardinality(String), String),
    SpanAttributes Map(LowCardinality(String), String)
)
ENGINE = Null;

CREATE MATERIALIZED VIEW IF NOT EXISTS spans_to_step_spans TO step_spans AS
SELECT Timestamp, ServiceName, ResourceAttributes, SpanAttributes
FROM spans
WHERE SpanName = 'evenkeel.engine.steps';

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
    prefilling_tokens Array(UInt32),
    refused_numbers Map(LowCardinality(String), LowCardinality(String))
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
    arrayFilter((tokens, run) -> run = place - 1, tokens_of_names, runs_of_names) AS prefilling_tokens,
    refused_numbers
FROM (
    WITH
        ['start_s', 'duration_s', 'busy_s', 'longest_s', 'num_steps', 'num_batched', 'num_running',
            'num_waiting', 'num_set_aside', 'prefill_tokens', 'decode_tokens', 'drafted_tokens',
            'accepted_tokens', 'emitted_tokens', 'num_preempted', 'blocks_live', 'blocks_resident',
            'blocks_total'] AS names_of_lists,
        [SpanAttributes['evenkeel.steps.start_s'], SpanAttributes['evenkeel.steps.duration_s'],
            SpanAttributes['evenkeel.steps.busy_s'], SpanAttributes['evenkeel.steps.longest_s'],
            SpanAttributes['evenkeel.steps.num_steps'], SpanAttributes['evenkeel.steps.num_batched'],
            SpanAttributes['evenkeel.steps.num_running'], SpanAttributes['evenkeel.steps.num_waiting'],
            SpanAttributes['evenkeel.steps.num_set_aside'], SpanAttributes['evenkeel.steps.prefill_tokens'],
            SpanAttributes['evenkeel.steps.decode_tokens'], SpanAttributes['evenkeel.steps.drafted_tokens'],
            SpanAttributes['evenkeel.steps.accepted_tokens'],
            SpanAttributes['evenkeel.steps.emitted_tokens'], SpanAttributes['evenkeel.steps.num_preempted'],
            SpanAttributes['evenkeel.steps.blocks_live'], SpanAttributes['evenkeel.steps.blocks_resident'],
            SpanAttributes['evenkeel.steps.blocks_total']] AS texts,
        arrayMap(text -> JSONExtract(text, 'Array(Nullable(Float64))'), texts) AS said,
        arrayMap((list, low, high, is_whole) -> arrayMap(
                x -> if(x BETWEEN low AND high AND x = if(is_whole, floor(x), x), x, NULL), list),
            said,
            [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 0.],
            [3600., 1000000., 1000000., 1000000., 4294967295., 4294967295., 4294967295., 4294967295.,
                4294967295., 4294967295., 4294967295., 4294967295., 4294967295., 4294967295., 4294967295.,
                4294967295., 4294967295., 4294967295.],
            [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]) AS in_range,
        arrayMap(list -> arrayResize(arrayMap(x -> ifNull(x, 0.), list), length(said[1])), in_range) AS lists,
        (name -> JSONExtract(SpanAttributes[concat('evenkeel.steps.', name)], 'Array(UInt32)'))
            AS counts
    SELECT
        Timestamp,
        ServiceName,
        ResourceAttributes['service.instance.id'] AS instance,
        toUInt16OrZero(SpanAttributes['evenkeel.engine.index']) AS engine,
        SpanAttributes['gen_ai.request.model'] AS model,
        lists[1] AS all_start_s,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.held_by'], 'Array(String)'),
            length(all_start_s)) AS all_held_by,
        counts('prefilling_run') AS runs_of_names,
        arrayResize(JSONExtract(SpanAttributes['evenkeel.steps.prefilling_id'], 'Array(String)'),
            length(runs_of_names)) AS names,
        arrayResize(counts('prefilling_tokens'), length(runs_of_names)) AS tokens_of_names,
        lists[2] AS all_duration_s,
        lists[3] AS all_busy_s,
        lists[4] AS all_longest_s,
        lists[5] AS all_num_steps,
        lists[6] AS all_num_batched,
        lists[7] AS all_num_running,
        lists[8] AS all_num_waiting,
        lists[9] AS all_num_set_aside,
        lists[10] AS all_prefill_tokens,
        lists[11] AS all_decode_tokens,
        lists[12] AS all_drafted_tokens,
        lists[13] AS all_accepted_tokens,
        lists[14] AS all_emitted_tokens,
        lists[15] AS all_num_preempted,
        lists[16] AS all_blocks_live,
        lists[17] AS all_blocks_resident,
        lists[18] AS all_blocks_total,
        CAST(arrayFilter(refused -> refused.1 != '', arrayMap((name, text, list) -> multiIf(
            text IN ('', '[]'), ('', ''),
            empty(list), (name, 'not_a_number'),
            has(list, NULL), (name, 'out_of_range'), ('', '')), names_of_lists, texts, in_range)),
                'Map(LowCardinality(String), LowCardinality(String))') AS refused_numbers
    FROM step_spans
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
