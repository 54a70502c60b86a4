-- The same means by step; see phase_summary.
SELECT
    toStartOfInterval(time, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    sumIf(sample_weight * queue_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(queue_s)), 0) AS queue_mean_s,
    sumIf(sample_weight * prefill_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(prefill_s)), 0) AS prefill_mean_s,
    sumIf(sample_weight * decode_s, isNotNull(ttft_s))
        / nullIf(sumIf(sample_weight, isNotNull(ttft_s) AND isNotNull(decode_s)), 0) AS decode_mean_s
FROM evenkeel.requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64})
  AND time < fromUnixTimestamp64Milli({to_ms:Int64})
  AND ({model:String} = '' OR model = {model:String})
  AND ({tenant:String} = '' OR tenant = {tenant:String})
  AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
  AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY bucket
ORDER BY bucket
