-- The view that judges events, slo_judged, is set at each start: slo_judged.sql.

-- Which objectives the rollups count: one row per SLO and set; the set with the highest number is in
-- force, and complete, because its rows come last and at once. `key` is the SLO's in slo_good and
-- slo_bad: a changed objective gets another, so that counts of two definitions never add up.
CREATE TABLE IF NOT EXISTS slo_objectives (
    number UInt32,
    since DateTime64(3, 'UTC'),
    slo String,
    key String,
    weight Float64,
    definition String
)
ENGINE = MergeTree
ORDER BY number;

-- Good and bad events by minute and by hour of the objectives in force; rows must be summed up.
CREATE VIEW IF NOT EXISTS slo_counts_1m AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    minute, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1m
ARRAY JOIN objectives AS objective
WHERE good > 0 OR bad > 0;

CREATE VIEW IF NOT EXISTS slo_counts_1h AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    hour, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1h
ARRAY JOIN objectives AS objective
WHERE good > 0 OR bad > 0;

-- One row per SLO and evaluation. What has no value is NULL: no data is never 0 and never 100 %.
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
    windows Nested                            -- one element per alert window pair
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

-- One row per change of an alert's state, written once: the insert carries transition_id as its token.
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
