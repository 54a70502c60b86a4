-- What requests cost. `cost` is in the bill's currency and NULL without a price; pricing.py sets the
-- defaults of `cost` and `currency` from the price file, so rows are priced as they are stored and keep what
-- they cost. Rows that are here already have no cost: the update writes that down before a default exists.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS cache_write_tokens Nullable(UInt32);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS reasoning_tokens Nullable(UInt32);

ALTER TABLE requests ADD COLUMN IF NOT EXISTS given_cost Nullable(Float64);

ALTER TABLE requests UPDATE cost = NULL, currency = NULL WHERE 1 SETTINGS mutations_sync = 1;

-- cost: of requests with a price; the others are num_requests - num_priced. cancelled_cost and failed_cost
-- are the part of it that requests cost whose client left, or that failed; wasted_cost is the part of
-- all others' cost that an engine spent on work nobody got. saved_prefix_cost and saved_drafts_cost would have come on top without
-- the engine's prefix cache and its drafts.
ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS cancelled_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS failed_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS num_priced SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS wasted_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS saved_prefix_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS saved_drafts_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS cancelled_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS failed_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS num_priced SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS wasted_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS saved_prefix_cost SimpleAggregateFunction(sum, Float64);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS saved_drafts_cost SimpleAggregateFunction(sum, Float64);

-- As before, with the columns above: a view keeps the columns that its tables had.
CREATE OR REPLACE VIEW requests_rolled AS
SELECT *
FROM requests_1m
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC')
    AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000), 'UTC')
    AND ({step_s:UInt32} % 3600 != 0
        OR minute < toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
        OR minute >= toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC')))
UNION ALL
SELECT *
FROM requests_1h
WHERE {step_s:UInt32} % 3600 = 0
    AND hour >= toStartOfHour(toDateTime(intDiv({from_ms:Int64}, 1000) + 3599, 'UTC'))
    AND hour < toStartOfHour(toDateTime(intDiv({to_ms:Int64}, 1000), 'UTC'));

-- The prices in force, and those before: one row per price and set, a set whenever the price file changed.
-- Amounts are in the bill's currency, of tokens per million, of engines per hour with energy. Each set has one
-- row whose kind is '', which has only the currency.
CREATE TABLE IF NOT EXISTS prices (
    number UInt32,
    since DateTime64(3, 'UTC'),
    kind LowCardinality(String),
    name String,
    currency LowCardinality(String),
    valid_from Nullable(DateTime('UTC')),
    valid_until Nullable(DateTime('UTC')),
    input Nullable(Float64),
    cached_input Nullable(Float64),
    cache_write Nullable(Float64),
    output Nullable(Float64),
    reasoning Nullable(Float64),
    hour Nullable(Float64),
    devices Nullable(UInt32),
    idle LowCardinality(String),
    source String,
    read Nullable(Date)
)
ENGINE = MergeTree
ORDER BY number;
