-- One row an SLO and evaluation. What has no value is NULL: no data is never 0 and never 100 %.
CREATE TABLE IF NOT EXISTS slo_status
(
    time DateTime64(9, 'UTC'),                -- end of the evaluated window
    slo LowCardinality(String),
    objective LowCardinality(String),         -- ttft, tpot, itl, stall, e2e, availability
    threshold_s Nullable(Float64),
    target Float64,
    period_s Float64,                         -- the budget period as evaluated, scale included
    scale Float64,                            -- 1, or what the file shrinks its windows by
    selector Map(LowCardinality(String), String),
    state LowCardinality(String),             -- no_data, ok, pending, firing
    severity LowCardinality(Nullable(String)), -- page or ticket while pending or firing
    good Float64,                             -- good events of the period, weighted
    total Float64,                            -- valid events of the period, weighted
    sli Nullable(Float64),                    -- good / total
    budget_left_ratio Nullable(Float64),      -- 1 - (1 - sli) / (1 - target), may be negative
    windows Nested                            -- one element an alert window pair
    (
        severity LowCardinality(String),
        factor Float64,                       -- both burn rates must exceed it
        long_s Float64,
        short_s Float64,
        burn_long Nullable(Float64),          -- (1 - SLI of the window) / (1 - target)
        burn_short Nullable(Float64)
    )
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (slo, time)
TTL toDateTime(time) + INTERVAL 400 DAY;

-- One row a change of an alert's state, written once: the insert carries transition_id as its token.
CREATE TABLE IF NOT EXISTS alert_history
(
    time DateTime64(9, 'UTC'),
    transition_id String,                     -- also the idempotency id of its notifications
    alert_id String,                          -- one firing, from pending to resolved
    fingerprint LowCardinality(String),       -- of the labels, the same for every firing
    slo LowCardinality(String),
    severity LowCardinality(String),          -- page, ticket
    from_state LowCardinality(String),        -- inactive, pending, firing
    state LowCardinality(String),             -- pending, firing, resolved, inactive
    starts_at DateTime64(9, 'UTC'),
    ends_at Nullable(DateTime64(9, 'UTC')),
    silenced Bool,                            -- whether a silence kept it from the receivers
    sli Nullable(Float64),
    budget_left_ratio Nullable(Float64),
    factor Nullable(Float64),                 -- the pair that fired: the one furthest above its factor
    long_s Nullable(Float64),
    short_s Nullable(Float64),
    burn_long Nullable(Float64),
    burn_short Nullable(Float64),
    labels Map(LowCardinality(String), String),
    annotations Map(LowCardinality(String), String)
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(time)
ORDER BY (slo, severity, time)
SETTINGS non_replicated_deduplication_window = 1000;

-- Every valid event of one SLO, judged: what the verdict counts and what its evidence shows.
-- An event's time is the request's end, as for whoever counts completions: that a request waited
-- for a minute is known only then, and must fall into a window that is still open. Rows are pruned
-- by their start, so a request longer than max_request_ns is not seen.
CREATE VIEW IF NOT EXISTS slo_events AS
SELECT
    *,
    treatment = 'measured' AND value_s <= {threshold_s:Float64} AS is_good
FROM
(
    SELECT
        *,
        toUnixTimestamp64Nano(time) + toInt64(ifNull(e2e_s, 0) * 1e9) AS end_ns,
        transform(
            toString(status),
            ['error', 'aborted', 'shed'],
            [{error:String}, {aborted:String}, {shed:String}],
            'measured'
        ) AS treatment,
        multiIf(
            {metric:String} = 'ttft', ttft_s,
            {metric:String} = 'tpot', tpot_s,
            {metric:String} = 'itl', itl_p99_s,
            {metric:String} = 'stall', stall_s,
            {metric:String} = 'e2e', e2e_s,
            0
        ) AS measured_s,
        -- Without a first token, a request that lasted longer than the limit has missed it.
        if(
            {metric:String} = 'ttft' AND measured_s IS NULL AND toString(status) != 'ok'
                AND e2e_s > {threshold_s:Float64},
            e2e_s,
            measured_s
        ) AS value_s
    FROM requests
    WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
        AND ({route:String} = '' OR route = {route:String})
        AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
)
WHERE end_ns >= {from_ns:Int64}
    AND end_ns < {to_ns:Int64}
    AND treatment != 'excluded'
    AND (treatment = 'bad' OR value_s IS NOT NULL);
