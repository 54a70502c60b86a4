-- The three requests of a cohort that ended in the window and have most of what rose. Requests of the
-- cohort lack a value in the columns `lacking`.
SELECT request_id, trace_id, toUnixTimestamp64Milli(time) AS time_ms, status, input_tokens, output_tokens
FROM requests
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND $end_ns BETWEEN {from_ns:Int64} AND {to_ns:Int64} - 1
    AND ({model:String} = '' OR model = {model:String})
    AND ({tenant:String} = '' OR tenant = {tenant:String})
    AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    AND ({route:String} = '' OR route = {route:String})
    AND ({prompt_name:String} = '' OR prompt_name = {prompt_name:String})
    AND ({prompt_version:String} = '' OR prompt_version = {prompt_version:String})
    AND ({engine:String} = '' OR engine = {engine:String})
    AND arrayAll(name -> $column_by_name = '', {lacking:Array(String)})
    AND ifNull(multiIf(
        {measure:String} = 'input_tokens', isNotNull(input_tokens),
        {measure:String} = 'output_tokens', isNotNull(output_tokens),
        {measure:String} = 'reasoning_tokens', isNotNull(reasoning_tokens),
        {measure:String} = 'repeated_share', repeated_share > {above:Float64},
        {measure:String} = 'empty_share', status = 'ok'
            AND ifNull(visible_tokens, output_tokens - ifNull(reasoning_tokens, 0)) <= 0,
        {measure:String} = 'cut_share', status = 'ok' AND finish_reason = 'length',
        {measure:String} = 'failed_tool_share', tool_calls_failed > 0,
        finish_reason = 'content_filter'), 0)
ORDER BY
    multiIf(
        {measure:String} = 'input_tokens', toFloat64(input_tokens),
        {measure:String} = 'reasoning_tokens', toFloat64(reasoning_tokens),
        {measure:String} = 'repeated_share', repeated_share,
        toFloat64(output_tokens)) DESC NULLS LAST,
    request_id
LIMIT 3
