-- Cost by step for the cohorts that are drawn one by one; all others together are ''.
SELECT
    toStartOfInterval(r.minute, toIntervalSecond({step_s:UInt32}), 'UTC') AS bucket,
    multiIf(
        {dimension:String} = 'model', toString(model),
        {dimension:String} = 'tenant', toString(tenant),
        {dimension:String} = 'route', toString(route),
        {dimension:String} = 'service', toString(service),
        if(prompt_name = '', '', concat(prompt_name, '@', prompt_version))) AS known,
    if(known = '', 'none', known) AS named,
    if(named IN {cohorts:Array(String)}, named, '') AS cohort,
    sum(r.cost) AS cost
FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = {step_s:UInt32}) AS r
WHERE ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
GROUP BY bucket, known
ORDER BY bucket, cohort
