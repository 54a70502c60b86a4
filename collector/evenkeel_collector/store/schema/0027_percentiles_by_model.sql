-- Percentiles of a model by minute, over all its cohorts: the digests of a minute merged once, as it is
-- stored, and not at each look (docs/decisions/0172). The engine reads it by itself where a query asks
-- for nothing else.

ALTER TABLE requests_1m MODIFY SETTING deduplicate_merge_projection_mode = 'rebuild';

ALTER TABLE requests_1m ADD PROJECTION IF NOT EXISTS by_model (
    SELECT
        minute,
        model,
        quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s),
        quantilesTDigestMerge(0.5, 0.95, 0.99)(tpot_s),
        quantilesTDigestMerge(0.5, 0.95, 0.99)(itl_p99_s),
        quantilesTDigestMerge(0.5, 0.95, 0.99)(stall_s),
        quantilesTDigestMerge(0.5, 0.95, 0.99)(e2e_s),
        quantilesTDigestMerge(0.5, 0.95, 0.99)(queue_s)
    GROUP BY minute, model
);

ALTER TABLE requests_1m MATERIALIZE PROJECTION IF EXISTS by_model;
