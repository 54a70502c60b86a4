-- The same means of a long range, from the minute rollup.
SELECT
    sum(r.queue_sum_s) / nullIf(sum(r.num_queue), 0) AS queue_mean_s,
    sum(r.prefill_sum_s) / nullIf(sum(r.num_prefill), 0) AS prefill_mean_s,
    sum(r.decode_sum_s) / nullIf(sum(r.num_decode), 0) AS decode_mean_s
FROM evenkeel.requests_1m AS r
WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
  AND minute < toDateTime(intDiv({to_ms:Int64} + 999, 1000))
  AND ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
