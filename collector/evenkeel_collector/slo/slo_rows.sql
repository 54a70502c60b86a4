-- What SLOs judge of each request that ended in [from_ns, to_ns), as fixed-width numbers for
-- RowBinary: evenkeel/slo/judgement.py reads them in this order. What does not exist is NaN. A
-- selected column is the place of its value in the wanted ones, 0 where none of them wants it.
SELECT
    -- Ranges are those of store/number_ranges.py: rows of an older version may be beyond them.
    toInt64(toUnixTimestamp64Nano(time) + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) * 1e9))
        AS end_ns,
    -- 4: the caller's own mistake, see slo_judged.
    toUInt8(if(status = 'error'
            AND ifNull(http_status BETWEEN 400 AND 499 AND http_status NOT IN (408, 429), 0), 4,
        indexOf(['error', 'aborted', 'shed'], status))) AS ending,
    toFloat64(ifNull(ttft_s, nan)) AS ttft,
    toFloat64(ifNull(tpot_s, nan)) AS tpot,
    toFloat64(ifNull(itl_p99_s, nan)) AS itl,
    toFloat64(ifNull(stall_s, nan)) AS stall,
    toFloat64(ifNull(e2e_s, nan)) AS e2e,
    toFloat64(ifNull(drafted_tokens, nan)) AS drafted,
    toFloat64(ifNull(accepted_tokens, nan)) AS accepted,
    toFloat64(ifNull(input_tokens, nan)) AS input,
    toFloat64(ifNull(cached_tokens, nan)) AS cached,
    toFloat64(if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1)) AS weight,
    toUInt32(indexOf({model:Array(String)}, toString(requests.model))) AS model_code,
    toUInt32(indexOf({tenant:Array(String)}, ifNull(toString(requests.tenant), ''))) AS tenant_code,
    toUInt32(indexOf({slo_class:Array(String)}, ifNull(toString(requests.slo_class), '')))
        AS slo_class_code,
    toUInt32(indexOf({route:Array(String)}, ifNull(toString(requests.route), ''))) AS route_code,
    toUInt32(indexOf({prompt_name:Array(String)}, ifNull(toString(requests.prompt_name), '')))
        AS prompt_name_code,
    toUInt32(indexOf({prompt_version:Array(String)}, ifNull(toString(requests.prompt_version), '')))
        AS prompt_version_code,
    toUInt16(ifNull(if(http_status BETWEEN 100 AND 599, http_status, 0), 0)) AS http_status,
    -- Where SLOs have patterns, store.py asks whether each matches, in place of none.
    CAST([], 'Array(UInt8)') AS matched
FROM requests
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64} - {max_request_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND end_ns >= {from_ns:Int64}
    AND end_ns < {to_ns:Int64}
