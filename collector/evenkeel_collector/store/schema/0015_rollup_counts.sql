-- What the rollups lack: events of the SLOs, sums of the phases, and weights (docs/data-model.md).
-- Counts are weighted by sample_weight, hence no whole numbers where a sender sampled. The views that
-- fill the rollups are set at each start from collector/rollup.sql: they hold the objectives.

ALTER TABLE requests_1m MODIFY COLUMN num_requests SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_ok SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_error SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_aborted SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_shed SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN input_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN output_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN cached_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN wasted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN drafted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN accepted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN cacheable_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    ADD COLUMN IF NOT EXISTS queue_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS prefill_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS decode_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_queue SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_prefill SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_decode SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS slo_good SimpleAggregateFunction(sumMap, Map(String, Float64)),
    ADD COLUMN IF NOT EXISTS slo_bad SimpleAggregateFunction(sumMap, Map(String, Float64));

ALTER TABLE requests_1h MODIFY COLUMN num_requests SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_ok SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_error SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_aborted SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN num_shed SimpleAggregateFunction(sum, Float64),
    MODIFY COLUMN input_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN output_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN cached_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN wasted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN drafted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN accepted_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    MODIFY COLUMN cacheable_tokens SimpleAggregateFunction(sum, Nullable(Float64)),
    ADD COLUMN IF NOT EXISTS queue_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS prefill_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS decode_sum_s SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_queue SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_prefill SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS num_decode SimpleAggregateFunction(sum, Float64),
    ADD COLUMN IF NOT EXISTS slo_good SimpleAggregateFunction(sumMap, Map(String, Float64)),
    ADD COLUMN IF NOT EXISTS slo_bad SimpleAggregateFunction(sumMap, Map(String, Float64));

-- Which objectives the rollups count: one row an SLO and set; the set with the highest number is in
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
