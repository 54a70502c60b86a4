-- How the engines of a range computed, in words: precision of the weights, data type of the KV cache,
-- tensor- and pipeline-parallel sizes; most frequent first.
SELECT
    concat(ifNull(dtype, '?'), ', KV ', ifNull(kv_cache_dtype, '?'),
        ', TP ', ifNull(toString(tensor_parallel), '?'), ', PP ', ifNull(toString(pipeline_parallel), '?')) AS setup,
    count() AS num_requests
FROM requests
WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
    AND (isNotNull(dtype) OR isNotNull(kv_cache_dtype))
GROUP BY setup
ORDER BY num_requests DESC, setup
LIMIT 50
