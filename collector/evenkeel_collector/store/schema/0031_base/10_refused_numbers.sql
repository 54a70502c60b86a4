-- Refused numbers of all rows since the store was made; what `/metrics` shows.

CREATE TABLE IF NOT EXISTS refused_numbers (
    source LowCardinality(String),
    field LowCardinality(String),
    reason LowCardinality(String),
    num UInt64
)
ENGINE = SummingMergeTree
ORDER BY (source, field, reason)
SETTINGS non_replicated_deduplication_window = 1000,
    fsync_after_insert = 1, fsync_part_directory = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS requests_to_refused_numbers TO refused_numbers AS
SELECT 'requests' AS source, field, reason, count() AS num
FROM requests
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS eval_results_to_refused_numbers TO refused_numbers AS
SELECT 'eval_results' AS source, field, reason, count() AS num
FROM eval_results
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS feedback_to_refused_numbers TO refused_numbers AS
SELECT 'feedback' AS source, field, reason, count() AS num
FROM feedback
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS live_evaluations_to_refused_numbers TO refused_numbers AS
SELECT 'live_evaluations' AS source, field, reason, count() AS num
FROM live_evaluations
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_steps_to_refused_numbers TO refused_numbers AS
SELECT 'engine_steps' AS source, field, reason, count() AS num
FROM engine_steps
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;

CREATE MATERIALIZED VIEW IF NOT EXISTS engine_state_to_refused_numbers TO refused_numbers AS
SELECT 'engine_state' AS source, field, reason, count() AS num
FROM engine_state
ARRAY JOIN mapKeys(refused_numbers) AS field, mapValues(refused_numbers) AS reason
WHERE notEmpty(refused_numbers)
GROUP BY field, reason;
