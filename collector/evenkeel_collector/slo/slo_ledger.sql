-- Seconds that a bad and a good event of one SLO spent on average, by cause of the request ledger; a request
-- counts as many times as it stands for. Without good ones, their mean is NULL.
SELECT
    cause,
    sumIf(seconds * sample_weight, NOT is_good) / greatest(any(num_bad), 1) AS bad_s,
    sumIf(seconds * sample_weight, is_good) / nullIf(any(num_good), 0) AS good_s
FROM
(
    SELECT
        is_good,
        ledger,
        sample_weight,
        sumIf(sample_weight, NOT is_good) OVER () AS num_bad,
        sumIf(sample_weight, is_good) OVER () AS num_good
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
    WHERE notEmpty(ledger)
)
ARRAY JOIN mapKeys(ledger) AS cause, mapValues(ledger) AS seconds
WHERE isFinite(seconds)
GROUP BY cause
ORDER BY bad_s - ifNull(good_s, 0) DESC, cause
