-- Some sessions, by their keys.
SELECT
    session_id, tenant, toUnixTimestamp64Milli(start) AS start_ms,
    toUnixTimestamp64Milli(end) AS end_ms, is_open, num_requests, num_tools, input_tokens,
    output_tokens, e2e_s, recompute_s, ledger, cost, currency, model, last_status
FROM sessions
WHERE (tenant, session_id) IN (
    SELECT arrayJoin(arrayZip({tenants:Array(String)}, {session_ids:Array(String)})) AS key
)
