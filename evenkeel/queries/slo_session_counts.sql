-- Sessions that are over and bad ones, of several SLOs in buckets, each SLO's of its own width in
-- nanoseconds; buckets without events are absent.
SELECT
    slo,
    intDiv(over_ns, {width_ns:Array(Int64)}[slo + 1]) AS bucket,
    sum(total) AS total_sum,
    sum(bad) AS bad_sum
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
GROUP BY slo, bucket
