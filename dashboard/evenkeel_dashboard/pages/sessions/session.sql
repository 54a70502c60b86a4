-- One session, by its ID; the tenant's if it is known, because two tenants may use the same ID.
SELECT
    session_id, tenant, session_source, toUnixTimestamp64Nano(start) AS start_ns,
    toUnixTimestamp64Nano(end) AS end_ns, is_open, num_requests, num_tools, num_agents, num_ok,
    num_error, num_aborted, num_shed, num_tool_errors, num_evicted, input_tokens, output_tokens,
    cached_tokens, wasted_tokens, e2e_s, model_s, tool_s, client_s, recompute_s, ledger, cost,
    currency, model, slo_class, route, last_status
FROM sessions
WHERE session_id = {session_id:String}
ORDER BY tenant = {tenant:String} DESC, end DESC
LIMIT 1
