-- The bad events of one SLO, worst first: which requests burned its budget. `cause` is the largest of
-- the request's ledger within the time that the objective judges, or of all if it judges no duration.
WITH
    arrayExists(limit -> isFinite(limit), arrayConcat(
        {ttft_limit:Array(Float64)}, {e2e_limit:Array(Float64)}
    )) AS judges_first_token,
    arrayExists(limit -> isFinite(limit), arrayConcat(
        {tpot_limit:Array(Float64)}, {itl_limit:Array(Float64)}, {stall_limit:Array(Float64)},
        {e2e_limit:Array(Float64)}
    )) AS judges_decode,
    arrayFilter(
        cause -> (judges_first_token OR NOT judges_decode OR NOT startsWith(cause, 'ttft.'))
            AND (judges_decode OR NOT judges_first_token OR NOT startsWith(cause, 'decode.')),
        mapKeys(ledger)
    ) AS causes
SELECT
    toUnixTimestamp64Nano(time) AS time_ns, request_id, trace_id, model, tenant, slo_class, route,
    prompt_name, prompt_version, toString(status) AS status, value_s, ttft_s, e2e_s, input_tokens,
    output_tokens, bad, arraySort(cause -> -ledger[cause], causes)[1] AS cause
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
WHERE NOT is_good
ORDER BY value_s DESC NULLS LAST, time DESC
LIMIT {limit:UInt32}
