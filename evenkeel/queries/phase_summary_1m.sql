-- The same means of a long range, from the minute rollup.
SELECT
    sum(r.queue_sum_s) / nullIf(sum(r.num_queue), 0) AS queue_mean_s,
    sum(r.prefill_sum_s) / nullIf(sum(r.num_prefill), 0) AS prefill_mean_s,
    sum(r.decode_sum_s) / nullIf(sum(r.num_decode), 0) AS decode_mean_s
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
WHERE ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
