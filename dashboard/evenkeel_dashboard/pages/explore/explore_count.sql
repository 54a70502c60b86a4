-- How many requests match the guided filters.
SELECT count() AS num_found
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({status:String} = '' OR status = {status:String})
    AND ({finish_reason:String} = '' OR finish_reason = {finish_reason:String})
    AND ({session:String} = '' OR session_id = {session:String})
    AND ({engine:String} = '' OR engine = {engine:String})
    AND ({min_ttft_s:Float64} <= 0 OR ttft_s >= {min_ttft_s:Float64})
    AND ({min_e2e_s:Float64} <= 0 OR e2e_s >= {min_e2e_s:Float64})
    AND ({min_stall_s:Float64} <= 0 OR stall_s >= {min_stall_s:Float64})
    AND ({min_input_tokens:Float64} <= 0 OR input_tokens >= {min_input_tokens:Float64})
    AND ({min_output_tokens:Float64} <= 0 OR output_tokens >= {min_output_tokens:Float64})
