-- What one latency measure is of each request under one tool's definition: docs/metrics.md compares
-- them. `values` has one element a request, or one an emission gap where the definition pools gaps,
-- a request that has none, or that the definition leaves out, has no element. `one_in` reads that
-- share of the requests, chosen by their arrival's nanoseconds, and weight says what each stands for.
CREATE VIEW IF NOT EXISTS latency_values AS
SELECT
    *,
    sample_weight * {one_in:UInt32} AS weight,
    multiIf(
        {dimension:String} = 'model', toString(model),
        {dimension:String} = 'tenant', ifNull(toString(tenant), 'none'),
        {dimension:String} = 'slo_class', ifNull(toString(slo_class), 'none'),
        {dimension:String} = 'route', ifNull(toString(route), 'none'),
        {dimension:String} = 'prompt',
            if(prompt_name IS NULL, 'none', concat(prompt_name, '@', ifNull(prompt_version, '?'))),
        {dimension:String} = 'finish_reason', ifNull(toString(finish_reason), toString(status)),
        ''
    ) AS cohort,
    multiIf(
        -- OpenTelemetry's server metrics leave failed requests out.
        {definition:String} = 'otel' AND status != 'ok', NULL,
        {measure:String} = 'ttft',
            if({definition:String} = 'vllm_api', prefill_s, ttft_s),
        {measure:String} = 'tpot',
            multiIf(
                {definition:String} = 'guidellm', e2e_s / nullIf(output_tokens, 0),
                {definition:String} = 'vllm' AND output_tokens = 1, 0,
                {definition:String} = 'ours', tpot_s,
                output_tokens > 1, (e2e_s - ttft_s) / nullIf(output_tokens - 1, 0),
                NULL
            ),
        {measure:String} = 'itl',
            if({definition:String} IN ('mlperf', 'guidellm', 'otel'), tpot_s, itl_p99_s),
        {measure:String} = 'stall', stall_s,
        {measure:String} = 'queue', queue_s,
        e2e_s
    ) AS value_s,
    if(
        {measure:String} = 'itl' AND {definition:String} IN ('vllm', 'vllm_api'),
        arraySlice(arrayDifference(emission_time_s), 2),
        if(value_s IS NULL, [], [assumeNotNull(value_s)])
    ) AS values
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({one_in:UInt32} = 1 OR intHash64(toUnixTimestamp64Nano(time)) % {one_in:UInt32} = 0)
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String});
