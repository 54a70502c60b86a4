-- The worst bad sessions of an SLO in a span, and how many of all were bad.
SELECT
    session_id, tenant, last_status, bad, num_requests, num_tools, num_evicted, metric, value,
    toUnixTimestamp64Milli(start) AS start_ms,
    toUnixTimestamp64Nano(end) AS end_ns,
    sum(bad) OVER () AS num_bad,
    sum(total) OVER () AS num_events
FROM slo_judged_sessions(
    slo = {slo:Array(UInt32)}, metric = {metric:Array(String)}, limit = {limit:Array(Float64)},
    error = {error:Array(String)}, aborted = {aborted:Array(String)}, shed = {shed:Array(String)},
    silence_ns = {silence_ns:Array(Int64)}, model = {model:Array(String)},
    tenant = {tenant:Array(String)}, route = {route:Array(String)},
    filter_slo = {filter_slo:Array(UInt32)}, filter_column = {filter_column:Array(String)},
    filter_pattern = {filter_pattern:Array(String)},
    filter_excludes = {filter_excludes:Array(UInt8)},
    from_ns = {from_ns:Int64}, to_ns = {to_ns:Int64}
)
ORDER BY bad DESC, value DESC NULLS FIRST, over_ns DESC
LIMIT {limit_rows:UInt32}
