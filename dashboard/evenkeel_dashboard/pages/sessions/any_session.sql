-- When a session was last seen; no row if none is stored.
SELECT toUnixTimestamp64Milli(max(session_parts.end)) AS end_ms FROM session_parts HAVING count() > 0
