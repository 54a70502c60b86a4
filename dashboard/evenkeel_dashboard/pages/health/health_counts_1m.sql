-- The numbers of `health` except percentiles, from the rollup; a step is a whole number of minutes. The
-- minute in which the range begins counts as before it; with steps of whole hours, as ranges of days have,
-- the hour does, since `requests_rolled` returns whole hours. Rates divide by the time that is left, and
-- those of a range only by its part since the stored data starts.
WITH
    if({step_s:UInt32} % 3600 = 0, 3600, 60) AS rolled_s,
    ceil(intDiv({from_ms:Int64}, 1000) / rolled_s) * rolled_s AS begin_s
SELECT
    part = 2 AS is_now,
    toUnixTimestamp(step) AS bucket,
    greatest(1, multiIf(
        bucket > 0, least(toFloat64(bucket) + {step_s:UInt32}, {to_ms:Int64} / 1000)
            - greatest(toFloat64(bucket), begin_s),
        is_now, {to_ms:Int64} / 1000 - greatest(begin_s, {data_from_ms:Int64} / 1000),
        begin_s - greatest(ceil(intDiv({before_ms:Int64}, 1000) / 60) * 60, {data_from_ms:Int64} / 1000)
    )) AS covered_s,
    sum(r.num_requests) AS num_requests,
    sum(r.num_requests) / covered_s AS requests_per_s,
    sum(r.num_ok) / covered_s AS ok_per_s,
    sum(r.num_error) / covered_s AS errors_per_s,
    sum(r.num_aborted) / covered_s AS aborted_per_s,
    sum(r.num_shed) / covered_s AS shed_per_s,
    sum(r.num_error) / nullIf(sum(r.num_requests), 0) AS error_ratio,
    sum(r.num_aborted) / nullIf(sum(r.num_requests), 0) AS aborted_ratio,
    sum(r.num_shed) / nullIf(sum(r.num_requests), 0) AS shed_ratio,
    sum(r.output_tokens) / covered_s AS output_tokens_per_s,
    sum(r.cached_tokens) / nullIf(sum(r.cacheable_tokens), 0) AS cached_token_ratio,
    sum(r.accepted_tokens) / nullIf(sum(r.drafted_tokens), 0) AS acceptance_rate,
    sum(r.queue_sum_s) / nullIf(sum(r.num_queue), 0) AS queue_mean_s,
    sum(r.prefill_sum_s) / nullIf(sum(r.num_prefill), 0) AS prefill_mean_s,
    sum(r.decode_sum_s) / nullIf(sum(r.num_decode), 0) AS decode_mean_s
FROM requests_rolled(
    from_ms = {before_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
WHERE ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY
    if(r.minute < toDateTime(intDiv({from_ms:Int64}, 1000), 'UTC'), 1, 2) AS part,
    if(part = 1, toDateTime(1, 'UTC'),
        toStartOfInterval(r.minute, toIntervalSecond({step_s:UInt32}), 'UTC')) AS step
WITH ROLLUP
HAVING part = 2 OR (part = 1 AND bucket = 0)
ORDER BY is_now, bucket
