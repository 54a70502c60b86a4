-- Engines beside vLLM: their spans are recognised by scope, too (store/engine_spans.py sets the views'
-- queries at each start), and Triton's label for the model is `model`.
ALTER TABLE spans_of_others ADD COLUMN IF NOT EXISTS ScopeName LowCardinality(String) AFTER ServiceName;

ALTER TABLE otlp_traces_to_engine_state MODIFY QUERY
WITH
    point.time_unix_nano NOT BETWEEN received_unix_nano - 90 * 86400 * 1000000000
        AND received_unix_nano + 86400 * 1000000000 AS is_clamped,
    [point.value, point.sum, point.min, point.max] AS said,
    arrayMap(x -> if(x BETWEEN -1e30 AND 1e30, x, NULL), said) AS numbers,
    if(point.count <= 1000000000000000, point.count, NULL) AS count_in_range,
    arrayAll(x -> isFinite(x), point.bounds) AND arraySort(point.bounds) = point.bounds
        AS are_bounds_kept,
    length(point.bucket_counts) = length(point.bounds) + 1 AS are_as_many,
    arrayAll(x -> x <= 1000000000000000, point.bucket_counts) AS are_counts_kept,
    are_bounds_kept AND are_as_many AND are_counts_kept AS are_buckets_kept
SELECT
    fromUnixTimestamp64Nano(toInt64(if(is_clamped, received_unix_nano, point.time_unix_nano)), 'UTC')
        AS time,
    if(point.start_unix_nano BETWEEN 1 AND 4102444800000000000,
        fromUnixTimestamp64Nano(toInt64(point.start_unix_nano), 'UTC'), NULL) AS start_time,
    point.name AS name,
    point.kind AS kind,
    point.unit AS unit,
    point.temporality AS temporality,
    point.is_monotonic AS is_monotonic,
    resource_attributes['service.name'] AS service,
    resource_attributes['service.instance.id'] AS instance,
    attributes[arrayFirst(key -> attributes[key] != '',
        ['gen_ai.request.model', 'gen_ai.response.model', 'model_name',
            'model'])] AS model,
    point.attributes AS attributes,
    resource_attributes,
    numbers[1] AS value,
    count_in_range AS count,
    numbers[2] AS sum,
    numbers[3] AS min,
    numbers[4] AS max,
    if(are_buckets_kept, point.bounds, []) AS bounds,
    if(are_buckets_kept, point.bucket_counts, []) AS bucket_counts,
    is_clamped AS is_time_clamped,
    CAST(arrayConcat(
        arrayMap((name, x) -> (name, if(isFinite(x), 'out_of_range', 'not_finite')),
            arrayFilter((name, x, number) -> isNotNull(x) AND isNull(number),
                ['value', 'sum', 'min', 'max'], said, numbers),
            arrayFilter((x, number) -> isNotNull(x) AND isNull(number), said, numbers)),
        if(isNotNull(point.count) AND isNull(count_in_range), [('count', 'out_of_range')], []),
        multiIf(are_buckets_kept OR empty(point.bucket_counts), [],
            NOT are_bounds_kept, [('bounds', if(arrayAll(x -> isFinite(x), point.bounds), 'out_of_range',
                'not_finite'))],
            NOT are_counts_kept, [('bucket_counts', 'out_of_range')],
            [('bucket_counts', 'lengths_differ')])), 'Map(LowCardinality(String), LowCardinality(String))')
                AS refused_numbers
FROM (
    SELECT received_unix_nano, metric_group.resource_attributes AS resource_attributes,
        arrayJoin(metric_group.points) AS point
    FROM (
        SELECT received_unix_nano, arrayJoin(metric_groups) AS metric_group FROM metric_segments
    )
);

-- The rollups read it, so it is here and not added at start as other fields are.
ALTER TABLE requests ADD COLUMN IF NOT EXISTS engine LowCardinality(Nullable(String));

ALTER TABLE requests_1m ADD COLUMN IF NOT EXISTS engine LowCardinality(String) AFTER service,
    MODIFY ORDER BY (model, minute, tenant, slo_class, route, prompt_name, prompt_version, service, engine);

ALTER TABLE requests_1h ADD COLUMN IF NOT EXISTS engine LowCardinality(String) AFTER service,
    MODIFY ORDER BY (model, hour, tenant, slo_class, route, prompt_name, prompt_version, service, engine);

CREATE OR REPLACE VIEW slo_counts_1m AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    minute, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service, engine,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1m
ARRAY JOIN objectives AS objective
WHERE good > 0 OR bad > 0;

CREATE OR REPLACE VIEW slo_counts_1h AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    hour, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service, engine,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1h
ARRAY JOIN objectives AS objective
WHERE good > 0 OR bad > 0;
