-- Who spent one SLO's budget, and on what, in one scan of its events: valid and bad events by cohort
-- of each dimension, '' for requests without a value. The row without a dimension covers all events: time of
-- bad and good ones by phase, outcomes of the bad ones, and the 15 worst (furthest above the limit first,
-- then failed ones, newest first). Events that ended in corrected time are excluded.
SELECT
    dimension,
    cohort,
    sum(total_sum) AS total_sum,
    sum(bad_sum) AS bad_sum,
    sum(num_events) AS num_events,
    sum(num_bad) AS num_bad,
    sum(num_error) AS num_error,
    sum(num_aborted) AS num_aborted,
    sum(num_shed) AS num_shed,
    sum(bad_s[1]) / nullIf(sum(bad_n[1]), 0) AS bad_queue_s,
    sum(bad_s[2]) / nullIf(sum(bad_n[2]), 0) AS bad_prefill_s,
    sum(bad_s[3]) / nullIf(sum(bad_n[3]), 0) AS bad_decode_s,
    sum(good_s[1]) / nullIf(sum(good_n[1]), 0) AS good_queue_s,
    sum(good_s[2]) / nullIf(sum(good_n[2]), 0) AS good_prefill_s,
    sum(good_s[3]) / nullIf(sum(good_n[3]), 0) AS good_decode_s,
    groupArraySortedArrayIf(15)(worst, dimension = '') AS found,
    found.3 AS worst_model,
    found.4 AS worst_ns,
    found.5 AS worst_id
FROM
(
    SELECT
        toString(model) AS of_model,
        toString(ifNull(tenant, '')) AS of_tenant,
        toString(ifNull(slo_class, '')) AS of_slo_class,
        toString(ifNull(route, '')) AS of_route,
        if(prompt_version IS NULL, '', concat(toString(ifNull(prompt_name, '?')), '@',
            toString(prompt_version))) AS of_prompt,
        toString(ifNull(engine, '')) AS of_engine,
        toString(ifNull(response_cache, '')) AS of_response_cache,
        sum(total) AS total_sum,
        sum(bad) AS bad_sum,
        sum(sample_weight) AS num_events,
        sumIf(sample_weight, NOT is_good) AS num_bad,
        sumIf(sample_weight, toString(status) = 'error') AS num_error,
        sumIf(sample_weight, toString(status) = 'aborted' AND NOT is_good) AS num_aborted,
        sumIf(sample_weight, toString(status) = 'shed') AS num_shed,
        [sumIf(queue_s * sample_weight, NOT is_good), sumIf(prefill_s * sample_weight, NOT is_good),
            sumIf(decode_s * sample_weight, NOT is_good)] AS bad_s,
        [sumIf(sample_weight, queue_s IS NOT NULL AND NOT is_good),
            sumIf(sample_weight, prefill_s IS NOT NULL AND NOT is_good),
            sumIf(sample_weight, decode_s IS NOT NULL AND NOT is_good)] AS bad_n,
        [sumIf(queue_s * sample_weight, is_good), sumIf(prefill_s * sample_weight, is_good),
            sumIf(decode_s * sample_weight, is_good)] AS good_s,
        [sumIf(sample_weight, queue_s IS NOT NULL AND is_good),
            sumIf(sample_weight, prefill_s IS NOT NULL AND is_good),
            sumIf(sample_weight, decode_s IS NOT NULL AND is_good)] AS good_n,
        groupArraySortedIf(15)((-ifNull(worst_share, -1), -toUnixTimestamp64Milli(time),
            toString(model), toUnixTimestamp64Nano(time), request_id), NOT is_good) AS worst
    FROM slo_judged(
        slo = {slo:Array(UInt32)}, unit = {unit:Array(String)}, target = {target:Array(Float64)},
        ttft_limit = {ttft_limit:Array(Float64)}, tpot_limit = {tpot_limit:Array(Float64)},
        itl_limit = {itl_limit:Array(Float64)}, stall_limit = {stall_limit:Array(Float64)},
        e2e_limit = {e2e_limit:Array(Float64)}, error = {error:Array(String)},
        aborted = {aborted:Array(String)}, shed = {shed:Array(String)},
        model = {model:Array(String)}, tenant = {tenant:Array(String)},
        slo_class = {slo_class:Array(String)}, route = {route:Array(String)},
        prompt_name = {prompt_name:Array(String)}, prompt_version = {prompt_version:Array(String)}, engine = {engine:Array(String)},
 filter_slo = {filter_slo:Array(UInt32)}, filter_column = {filter_column:Array(String)},
 filter_pattern = {filter_pattern:Array(String)},
 filter_excludes = {filter_excludes:Array(UInt8)},
 status_slo = {status_slo:Array(UInt32)}, status_first = {status_first:Array(UInt16)},
 status_last = {status_last:Array(UInt16)}, status_kind = {status_kind:Array(UInt8)},
        from_ns = {from_ns:Int64}, to_ns = {to_ns:Int64}, max_request_ns = {max_request_ns:Int64}
    )
    WHERE NOT arrayExists((from_ns, to_ns) -> end_ns >= from_ns AND end_ns < to_ns,
        {corrected_from_ns:Array(Int64)}, {corrected_to_ns:Array(Int64)})
    GROUP BY of_model, of_tenant, of_slo_class, of_route, of_prompt, of_engine, of_response_cache
)
ARRAY JOIN
    ['', 'model', 'tenant', 'slo_class', 'route', 'prompt', 'engine', 'response_cache'] AS dimension,
    ['all', of_model, of_tenant, of_slo_class, of_route, of_prompt, of_engine, of_response_cache]
        AS cohort
GROUP BY dimension, cohort
