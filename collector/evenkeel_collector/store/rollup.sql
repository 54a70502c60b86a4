-- What requests_1m keeps of the requests of a minute; rollups.py fills in the objectives.
-- Everything is weighted by what a request stands for. A digest takes whole weights, and its state is
-- the same as that of requests that stand for themselves alone. Phases are those of requests that got
-- a token.
WITH
    $weight AS weight,
    toUInt32(round(weight)) AS whole_weight,
    isNotNull(requests.ttft_s) AS has_token,
    $ending AS ending
SELECT
    toStartOfMinute(time) AS minute,
    model,
    ifNull(requests.tenant, '') AS tenant,
    ifNull(requests.slo_class, '') AS slo_class,
    ifNull(requests.route, '') AS route,
    ifNull(requests.prompt_name, '') AS prompt_name,
    ifNull(requests.prompt_version, '') AS prompt_version,
    service,
    ifNull(requests.engine, '') AS engine,
    sum(weight) AS num_requests,
    sumIf(weight, status = 'ok') AS num_ok,
    sumIf(weight, status = 'error') AS num_error,
    sumIf(weight, status = 'aborted') AS num_aborted,
    sumIf(weight, status = 'shed') AS num_shed,
    sum(weight * requests.input_tokens) AS input_tokens,
    sum(weight * requests.output_tokens) AS output_tokens,
    sum(weight * requests.cached_tokens) AS cached_tokens,
    sum(weight * requests.wasted_tokens) AS wasted_tokens,
    sum(weight * requests.drafted_tokens) AS drafted_tokens,
    sum(weight * requests.accepted_tokens) AS accepted_tokens,
    sumIf(weight * requests.input_tokens, isNotNull(requests.cached_tokens)) AS cacheable_tokens,
    $digests,
    ifNull(sumIf(weight * requests.queue_s, has_token), 0) AS queue_sum_s,
    ifNull(sumIf(weight * requests.prefill_s, has_token), 0) AS prefill_sum_s,
    ifNull(sumIf(weight * requests.decode_s, has_token), 0) AS decode_sum_s,
    sumIf(weight, has_token AND isNotNull(requests.queue_s)) AS num_queue,
    sumIf(weight, has_token AND isNotNull(requests.prefill_s)) AS num_prefill,
    sumIf(weight, has_token AND isNotNull(requests.decode_s)) AS num_decode,
    $good AS slo_good,
    $bad AS slo_bad,
    sum(ifNull(weight * requests.cost, 0)) AS cost,
    sumIf(ifNull(weight * requests.cost, 0), status = 'aborted') AS cancelled_cost,
    sumIf(ifNull(weight * requests.cost, 0), status = 'error') AS failed_cost,
    sumIf(weight, isNotNull(requests.cost)) AS num_priced,
    $wasted AS wasted_cost,
    $saved_prefix AS saved_prefix_cost,
    $saved_drafts AS saved_drafts_cost
FROM requests
GROUP BY minute, model, tenant, slo_class, route, prompt_name, prompt_version, service, engine
