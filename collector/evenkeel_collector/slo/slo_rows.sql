-- What SLOs judge of each request that ended in [from_ns, to_ns), as fixed-width numbers for
-- RowBinary: judgement.py reads them in this order. What does not exist is NaN. A
-- selected column is the place of its value in the wanted ones, 0 where none of them wants it.
SELECT
    -- end_ns, ending and weight are those of evenkeel/slo/good_events.py.
    toInt64($end_ns) AS end_ns,
    toUInt8($ending) AS ending,
    toFloat64(ifNull(ttft_s, nan)) AS ttft,
    toFloat64(ifNull(tpot_s, nan)) AS tpot,
    toFloat64(ifNull(itl_p99_s, nan)) AS itl,
    toFloat64(ifNull(stall_s, nan)) AS stall,
    toFloat64(ifNull(e2e_s, nan)) AS e2e,
    toFloat64(ifNull(drafted_tokens, nan)) AS drafted,
    toFloat64(ifNull(accepted_tokens, nan)) AS accepted,
    toFloat64(ifNull(input_tokens, nan)) AS input,
    toFloat64(ifNull(cached_tokens, nan)) AS cached,
    toFloat64($weight) AS weight,
    toUInt32(indexOf({model:Array(String)}, toString(requests.model))) AS model_code,
    toUInt32(indexOf({tenant:Array(String)}, ifNull(toString(requests.tenant), ''))) AS tenant_code,
    toUInt32(indexOf({slo_class:Array(String)}, ifNull(toString(requests.slo_class), '')))
        AS slo_class_code,
    toUInt32(indexOf({route:Array(String)}, ifNull(toString(requests.route), ''))) AS route_code,
    toUInt32(indexOf({prompt_name:Array(String)}, ifNull(toString(requests.prompt_name), '')))
        AS prompt_name_code,
    toUInt32(indexOf({prompt_version:Array(String)}, ifNull(toString(requests.prompt_version), '')))
        AS prompt_version_code,
    toUInt32(indexOf({engine:Array(String)}, ifNull(toString(requests.engine), ''))) AS engine_code,
    toUInt16(ifNull(if(http_status BETWEEN 100 AND 599, http_status, 0), 0)) AS http_status,
    $matched AS matched
FROM requests
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND end_ns >= {from_ns:Int64}
    AND end_ns < {to_ns:Int64}
