-- What requests added to `session_parts`, with the opposite sign: their numbers, tokens and costs. UInt64
-- wraps around. What has no opposite, an interval or a name, stays.
SELECT
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.session_id, requests.trace_id) AS session_id,
    'request' AS kind,
    isNull(requests.session_id) OR ifNull(requests.session_source = 'trace', 0) AS is_trace,
    toDate(time) AS day,
    toUInt8(4) AS source,
    min(time) AS start,
    min(time) AS end,
    toUInt64(-toInt64(count())) AS num,
    toUInt64(-toInt64(countIf(status = 'ok'))) AS num_ok,
    toUInt64(-toInt64(countIf(status = 'error'))) AS num_error,
    toUInt64(-toInt64(countIf(status = 'aborted'))) AS num_aborted,
    toUInt64(-toInt64(countIf(status = 'shed'))) AS num_shed,
    toUInt64(-toInt64(sum(requests.input_tokens))) AS input_tokens,
    toUInt64(-toInt64(sum(requests.output_tokens))) AS output_tokens,
    toUInt64(-toInt64(sum(requests.cached_tokens))) AS cached_tokens,
    toUInt64(-toInt64(sum(requests.wasted_tokens))) AS wasted_tokens,
    -sum(ifNull(e2e_s, 0)) AS sum_s,
    -sum(ifNull(requests.queue_s, 0)) AS queue_s,
    -sum(ifNull(requests.prefill_s, 0)) AS prefill_s,
    -sum(ifNull(requests.decode_s, 0)) AS decode_s,
    -sum(requests.recompute_s) AS recompute_s,
    toUInt64(-toInt64(countIf(requests.recompute_s > 0))) AS num_evicted,
    -sum(requests.cost) AS cost
FROM $table AS requests
WHERE $condition
    AND (isNotNull(requests.session_id) OR requests.trace_id != '')
GROUP BY tenant, session_id, kind, is_trace, day
