-- How the sessions last seen in the range went, and the keys of one page of them in the order wanted. From
-- the parts, once: the view `sessions` also merges intervals, which takes seconds for a million sessions.
WITH (
    -- Most sessions of a long past were last seen before the range. To know them takes longer than it saves
    -- if they are few.
    SELECT countIf(end >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')) < 0.4 * count() FROM session_parts
) AS are_most_older
SELECT
    count() AS num_found,
    countIf(last_status_name != 'ok') AS num_failed,
    countIf(is_open) AS num_open,
    quantileOrNull(0.5)(e2e_s) AS e2e_p50_s,
    quantileOrNull(0.95)(e2e_s) AS e2e_p95_s,
    sum(num_recomputed) AS num_evicted,
    sum(cost_sum) AS total_cost,
    nullIf(max(currency_name), '') AS any_currency,
    -- Sorts in ascending order; a session without a value comes last.
    arraySlice(
        groupArraySorted({most:UInt32})((ifNull(-rank, inf), tenant, session_id)),
        {offset:UInt32} + 1, {limit:UInt32}
    ) AS found,
    arrayMap(key -> key.2, found) AS tenants,
    arrayMap(key -> key.3, found) AS session_ids
FROM
(
    SELECT
        tenant,
        session_id,
        minIf(start, kind != 'agent') AS began,
        maxIf(end, kind != 'agent') AS ended,
        ended > now64(9, 'UTC') - toIntervalMinute(30) AS is_open,
        (toUnixTimestamp64Nano(ended) - toUnixTimestamp64Nano(began)) / 1e9 AS e2e_s,
        sumIf(num, kind = 'request') AS num_turns,
        sum(num_evicted) AS num_recomputed,
        sum(recompute_s) AS recompute_sum_s,
        sum(cost) AS cost_sum,
        max(currency) AS currency_name,
        argMaxMerge(last_status) AS last_status_name,
        multiIf(
            {order_by:String} = 'e2e', e2e_s, {order_by:String} = 'cost', cost_sum,
            {order_by:String} = 'recompute', recompute_sum_s,
            {order_by:String} = 'turns', toFloat64(num_turns),
            toFloat64(toUnixTimestamp64Milli(ended))
        ) AS rank
    FROM session_parts_named
    -- By hash, which is faster; the range is checked below.
    WHERE NOT are_most_older OR cityHash64(tenant, session_id) IN (
        SELECT cityHash64(tenant, session_id)
        FROM session_parts_named
        -- Work takes at most 11.6 days.
        WHERE are_most_older AND end >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND day >= toDate(fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')) - 13
    )
    GROUP BY tenant, session_id
    HAVING num_turns > 0
        AND ended >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
        AND ended < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
        -- Without a filter, the column is not read.
        -- Rows of versions before migration 46 have only the largest name.
        AND ({model:String} = '' OR max(if({model:String} = '', '', model)) = {model:String}
            OR max(if({model:String} = '', 0, has(models, {model:String}))))
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({slo_class:String} = '' OR max(if({slo_class:String} = '', '', slo_class)) = {slo_class:String})
        AND ({route:String} = '' OR max(if({route:String} = '', '', route)) = {route:String})
        AND multiIf({outcome:String} = 'failed', last_status_name != 'ok',
            {outcome:String} = 'ok', NOT is_open AND last_status_name = 'ok',
            {outcome:String} = 'open', is_open, 1)
        AND ({order_by:String} != 'recompute' OR num_recomputed > 0)
)
