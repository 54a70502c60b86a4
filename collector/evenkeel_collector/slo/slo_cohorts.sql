-- Valid and bad events of one SLO by cohort: the values of each dimension; '' for requests without one. A
-- prompt is name@version: versions of two prompts with one number have nothing in common.
SELECT dimension, cohort, sum(total) AS total_sum, sum(bad) AS bad_sum
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
ARRAY JOIN
    ['model', 'tenant', 'slo_class', 'route', 'prompt', 'engine', 'response_cache'] AS dimension,
    [
        toString(model), toString(ifNull(tenant, '')), toString(ifNull(slo_class, '')),
        toString(ifNull(route, '')),
        if(prompt_version IS NULL, '', concat(toString(ifNull(prompt_name, '?')), '@',
            toString(prompt_version))),
        toString(ifNull(engine, '')), toString(ifNull(response_cache, ''))
    ] AS cohort
GROUP BY dimension, cohort
