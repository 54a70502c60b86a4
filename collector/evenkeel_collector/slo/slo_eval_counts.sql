-- Scored answers of evaluations and the wrong ones, in buckets of width_ns. Those of a live
-- evaluation are the dataset `live:NAME`, each counted as many times as it was drawn for. What a
-- tenant's token sent does not count.
SELECT
    intDiv(toUnixTimestamp64Nano(time), {width_ns:Int64}) AS bucket,
    sum(weight) AS total_sum,
    sumIf(weight, label = 'wrong') AS bad_sum
FROM
(
    SELECT
        time, toString(label) AS label, toFloat64(1) AS weight, ifNull(dataset, '') AS of_dataset,
        ifNull(model, '') AS of_model, ifNull(prompt_name, '') AS of_prompt,
        ifNull(prompt_version, '') AS of_version, ifNull(name, '') AS of_scorer
    FROM eval_results
    WHERE kind = 'answer'
        AND attributes['evenkeel.tenant'] = ''
        AND label IN ('right', 'wrong')
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    UNION ALL
    SELECT
        time, toString(label), 1 / probability, concat('live:', monitor),
        ifNull(model, ''), ifNull(prompt_name, ''), ifNull(prompt_version, ''), toString(scorer)
    FROM live_evaluations
    WHERE startsWith({dataset:String}, 'live:')
        AND sender = ''
        AND label IN ('right', 'wrong')
        AND probability > 0
        AND time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
        AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
)
WHERE ({dataset:String} = '' OR of_dataset = {dataset:String})
    AND ({model:String} = '' OR of_model = {model:String})
    AND ({prompt_name:String} = '' OR of_prompt = {prompt_name:String})
    AND ({prompt_version:String} = '' OR of_version = {prompt_version:String})
    AND ({scorer:String} = '' OR of_scorer = {scorer:String})
GROUP BY bucket
