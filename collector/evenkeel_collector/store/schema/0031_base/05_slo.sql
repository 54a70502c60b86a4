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

-- Every valid event of one or several SLOs, judged: what verdicts count and evidence shows. Each array
-- parameter has one element per SLO. A limit of inf judges nothing; without any finite limit an event is
-- good that ended well. A weight or duration out of range, which another sender may write, counts as none.
-- An event's time is the request's end: docs/decisions/0060-end-of-request.md. Rows are pruned by
-- their start, so a request longer than max_request_ns is not seen.
--
-- slo: its place in the arrays. total, bad: what the event weighs, in requests (sample_weight), or in
-- tokens where `unit` says acceptance (drafted tokens) or cache_hit (input tokens). value_s: the
-- judged value that lies furthest above its limit.
CREATE VIEW IF NOT EXISTS slo_judged AS
SELECT
    *,
    multiIf(
        unit = 'acceptance', sample_weight * drafted_tokens,
        unit = 'cache_hit', sample_weight * input_tokens,
        sample_weight
    ) AS total,
    multiIf(
        treatment = 'bad', total,
        unit = 'acceptance', sample_weight * (drafted_tokens - least(accepted_tokens, drafted_tokens)),
        unit = 'cache_hit', sample_weight * (input_tokens - least(cached_tokens, input_tokens)),
        is_missed, sample_weight,
        0
    ) AS bad,
    bad <= total * (1 - target) AS is_good
FROM
(
    SELECT
        *,
        slo,
        unit,
        target,
        -- 0: no range has its HTTP status; 1 measured, 2 bad, 3 excluded.
        arrayMax(
            (of_slo, first, last, kind) ->
                if(of_slo = slo AND ifNull(http_status BETWEEN first AND last, 0), kind, 0),
            arrayPushBack({status_slo:Array(UInt32)}, 0), arrayPushBack({status_first:Array(UInt16)}, 1),
            arrayPushBack({status_last:Array(UInt16)}, 0), arrayPushBack({status_kind:Array(UInt8)}, 0)
        ) AS kind_of_status,
        multiIf(
            kind_of_status = 1, 'measured', kind_of_status = 2, 'bad', kind_of_status = 3, 'excluded',
            status = 'error'
                AND ifNull(http_status BETWEEN 400 AND 499 AND http_status NOT IN (408, 429), 0),
            'excluded',
            status = 'error', error, status = 'aborted', aborted, status = 'shed', shed, 'measured'
        ) AS treatment,
        -- Without a first token, a request that lasted longer than the limit has missed it.
        if(ttft_s IS NULL AND status != 'ok' AND e2e_s > ttft_limit, e2e_s, ttft_s) AS ttft_value,
        [ttft_limit, tpot_limit, itl_limit, stall_limit, e2e_limit] AS limits,
        arrayMap(
            (value, bound) -> if(value IS NULL OR isInfinite(bound), -1., value / bound),
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s],
            limits
        ) AS shares,
        arrayMax(shares) AS worst_share,
        -- Compared and not divided: a quotient may round to 1.
        ifNull(ttft_value > ttft_limit, 0) OR ifNull(tpot_s > tpot_limit, 0)
            OR ifNull(itl_p99_s > itl_limit, 0) OR ifNull(stall_s > stall_limit, 0)
            OR ifNull(e2e_s > e2e_limit, 0) AS is_missed,
        if(
            worst_share < 0,
            NULL,
            [ttft_value, tpot_s, itl_p99_s, stall_s, e2e_s][indexOf(shares, worst_share)]
        ) AS value_s
    FROM
    (
        SELECT * REPLACE (if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1) AS sample_weight),
            toUnixTimestamp64Nano(time) + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) *
                1e9) AS end_ns
        FROM requests
        WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    )
    ARRAY JOIN
        {slo:Array(UInt32)} AS slo,
        {unit:Array(String)} AS unit,
        {target:Array(Float64)} AS target,
        {ttft_limit:Array(Float64)} AS ttft_limit,
        {tpot_limit:Array(Float64)} AS tpot_limit,
        {itl_limit:Array(Float64)} AS itl_limit,
        {stall_limit:Array(Float64)} AS stall_limit,
        {e2e_limit:Array(Float64)} AS e2e_limit,
        {error:Array(String)} AS error,
        {aborted:Array(String)} AS aborted,
        {shed:Array(String)} AS shed,
        {model:Array(String)} AS wanted_model,
        {tenant:Array(String)} AS wanted_tenant,
        {slo_class:Array(String)} AS wanted_slo_class,
        {route:Array(String)} AS wanted_route,
        {prompt_name:Array(String)} AS wanted_prompt_name,
        {prompt_version:Array(String)} AS wanted_prompt_version
    WHERE end_ns >= {from_ns:Int64}
        AND end_ns < {to_ns:Int64}
        AND (wanted_model = '' OR model = wanted_model)
        AND (wanted_tenant = '' OR tenant = wanted_tenant)
        AND (wanted_slo_class = '' OR slo_class = wanted_slo_class)
        AND (wanted_route = '' OR route = wanted_route)
        AND (wanted_prompt_name = '' OR prompt_name = wanted_prompt_name)
        AND (wanted_prompt_version = '' OR prompt_version = wanted_prompt_version)
        -- Patterns are RE2; what matches one that excludes is left out.
        AND arrayAll(
            (of_slo, column, pattern, excludes) -> of_slo != slo OR match(multiIf(
                column = 'model', toString(model),
                column = 'tenant', ifNull(toString(tenant), ''),
                column = 'slo_class', ifNull(toString(slo_class), ''),
                column = 'route', ifNull(toString(route), ''),
                column = 'prompt_name', ifNull(toString(prompt_name), ''),
                ifNull(toString(prompt_version), '')), pattern) != excludes,
            {filter_slo:Array(UInt32)}, {filter_column:Array(String)},
            {filter_pattern:Array(String)}, {filter_excludes:Array(UInt8)}
        )
)
WHERE treatment != 'excluded'
    AND multiIf(
        unit = 'acceptance', drafted_tokens > 0,
        unit = 'cache_hit', input_tokens > 0 AND cached_tokens IS NOT NULL,
        treatment = 'bad' OR worst_share >= 0 OR NOT arrayExists(bound -> isFinite(bound), limits)
    );

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
