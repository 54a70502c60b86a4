-- Mean server time per phase for the answers of one run, by side; the phases add up to the whole.
WITH answers AS
(
    SELECT DISTINCT trace_id, side
    FROM eval_results
    WHERE kind = 'answer' AND run_id = {run_id:String} AND isNotNull(side)
)
SELECT
    assumeNotNull(answers.side) AS side,
    count() AS num_requests,
    avg(queue_s) AS queue_mean_s,
    avg(prefill_s) AS prefill_mean_s,
    avg(decode_s) AS decode_mean_s,
    quantileExactInclusiveIf(0.5)(ifNull(ttft_s, 0), isNotNull(ttft_s)) AS ttft_p50_s,
    quantileExactInclusiveIf(0.95)(ifNull(e2e_s, 0), isNotNull(e2e_s)) AS e2e_p95_s,
    avg(input_tokens) AS input_tokens_mean,
    avg(output_tokens) AS output_tokens_mean
FROM requests
INNER JOIN answers ON answers.trace_id = requests.trace_id
WHERE time >= (SELECT min(time) FROM eval_results WHERE run_id = {run_id:String}) - toIntervalHour(1)
    AND time <= (SELECT max(time) FROM eval_results WHERE run_id = {run_id:String}) + toIntervalHour(1)
    AND status = 'ok'
GROUP BY side
ORDER BY side
