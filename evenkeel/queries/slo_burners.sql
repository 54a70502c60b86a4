-- The requests that spent an SLO's budget, those furthest above their limit first, then the failed
-- ones, the newest first.
SELECT
    toUnixTimestamp64Milli(j.time) AS time_ms, request_id, trace_id, j.model AS model, j.tenant AS tenant,
    j.slo_class AS slo_class, j.prompt_name AS prompt_name, j.prompt_version AS prompt_version,
    toString(j.status) AS status, finish_reason, error_type, input_tokens, cached_tokens,
    output_tokens, queue_s, prefill_s, decode_s, ttft_s, tpot_s, stall_s, e2e_s
FROM slo_judged(
    slo = {slo:Array(UInt32)}, unit = {unit:Array(String)}, target = {target:Array(Float64)},
    ttft_limit = {ttft_limit:Array(Float64)}, tpot_limit = {tpot_limit:Array(Float64)},
    itl_limit = {itl_limit:Array(Float64)}, stall_limit = {stall_limit:Array(Float64)},
    e2e_limit = {e2e_limit:Array(Float64)}, error = {error:Array(String)},
    aborted = {aborted:Array(String)}, shed = {shed:Array(String)}, model = {model:Array(String)},
    tenant = {tenant:Array(String)}, slo_class = {slo_class:Array(String)},
    route = {route:Array(String)}, prompt_name = {prompt_name:Array(String)},
    prompt_version = {prompt_version:Array(String)},
    from_ns = {from_ns:Int64}, to_ns = {to_ns:Int64}, max_request_ns = {max_request_ns:Int64}
) AS j
WHERE NOT is_good
ORDER BY worst_share DESC NULLS LAST, time_ms DESC
LIMIT {limit:UInt32}
