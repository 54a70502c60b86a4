-- Events and bad events of one SLO by prompt size: powers of two of input tokens.
SELECT
    toUInt64(exp2(ceil(log2(greatest(input_tokens, 1))))) AS up_to_tokens,
    toUInt64(round(sum(sample_weight))) AS num_events,
    toUInt64(round(sumIf(sample_weight, NOT is_good))) AS num_bad
FROM slo_judged(
    slo = {slo:Array(UInt32)}, unit = {unit:Array(String)}, target = {target:Array(Float64)},
    ttft_limit = {ttft_limit:Array(Float64)}, tpot_limit = {tpot_limit:Array(Float64)},
    itl_limit = {itl_limit:Array(Float64)}, stall_limit = {stall_limit:Array(Float64)},
    e2e_limit = {e2e_limit:Array(Float64)}, error = {error:Array(String)},
    aborted = {aborted:Array(String)}, shed = {shed:Array(String)}, model = {model:Array(String)},
    tenant = {tenant:Array(String)}, slo_class = {slo_class:Array(String)},
    route = {route:Array(String)}, prompt_name = {prompt_name:Array(String)},
    prompt_version = {prompt_version:Array(String)}, engine = {engine:Array(String)},
    filter_slo = {filter_slo:Array(UInt32)}, filter_column = {filter_column:Array(String)},
    filter_pattern = {filter_pattern:Array(String)},
    filter_excludes = {filter_excludes:Array(UInt8)},
    status_slo = {status_slo:Array(UInt32)}, status_first = {status_first:Array(UInt16)},
    status_last = {status_last:Array(UInt16)}, status_kind = {status_kind:Array(UInt8)},
    from_ns = {from_ns:Int64}, to_ns = {to_ns:Int64}, max_request_ns = {max_request_ns:Int64}
)
WHERE input_tokens IS NOT NULL
GROUP BY up_to_tokens
ORDER BY up_to_tokens
