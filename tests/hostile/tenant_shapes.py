"""Queries of every shape in which a function fails on other tenants' values, and not on own ones.

The engine moves and joins conditions in its plan; the function must not come before the filter that
leaves a tenant its own rows. `finish_reason` and `service` are those of `tenant_answers`.
"""

_DECODED = "base64Decode(finish_reason)"
_JOINS = (
    "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "RIGHT SEMI JOIN",
    "LEFT ANTI JOIN", "RIGHT ANTI JOIN", "LEFT ANY JOIN", "INNER ANY JOIN", "GLOBAL JOIN",
)  # fmt: skip
_A, _B = "base64Decode(a.finish_reason)", "base64Decode(b.finish_reason)"
_DERIVED = f"(SELECT {_DECODED} AS x FROM requests)"
_NUMBERS = "(SELECT toString(number) AS x FROM numbers(3))"
# {} is the kind of join.
_JOINED = (
    f"SELECT count() FROM requests AS a {{}} requests AS b ON {_A} = {_B}",
    f"SELECT count() FROM requests AS a {{}} requests AS b ON a.trace_id = b.trace_id"
    f" WHERE {_A} != ''",
    f"SELECT count() FROM requests AS a {{}} requests AS b ON a.trace_id = b.trace_id"
    f" WHERE {_A} = {_B}",
    f"SELECT count() FROM requests AS a {{}} requests AS b ON a.trace_id = b.trace_id"
    f" AND {_B} != ''",
    f"SELECT count() FROM requests AS a {{}} requests AS b ON a.finish_reason = b.finish_reason"
    f" WHERE {_A} != ''",
    f"SELECT count() FROM requests AS a {{}} requests AS b ON a.trace_id = b.trace_id"
    f" AND ({_A} = 'abcdef' OR {_B} = '123456')",
    f"SELECT count() FROM {_DERIVED} AS a {{}} {_DERIVED} AS b USING x WHERE x = 'abcdef'",
    f"SELECT count() FROM requests AS a {{}} {_NUMBERS} AS b ON {_A} = b.x",
    f"SELECT count() FROM {_NUMBERS} AS b {{}} requests AS a ON {_A} = b.x",
    f"SELECT a.trace_id, b.model FROM requests AS a {{}} requests AS b ON a.trace_id = b.trace_id"
    f" WHERE {_A} != '' ORDER BY {_B}, a.trace_id LIMIT 3",
)
_ORDERS = (
    "time", "time DESC", "trace_id", "model, time", "model DESC, time", "ttft_s",
    "toDate(time), time",
)  # fmt: skip
_OTHERS = (
    f"SELECT count() FROM requests AS a, requests AS b WHERE {_A} = {_B}",
    f"SELECT count() FROM requests AS a CROSS JOIN requests AS b WHERE {_A} > {_B}",
    f"SELECT count() FROM requests AS a ASOF JOIN requests AS b"
    f" ON {_A} = {_B} AND a.time >= b.time",
    f"SELECT count() FROM requests WHERE {_DECODED} IN (SELECT {_DECODED} FROM requests)",
    f"SELECT count() FROM requests WHERE {_DECODED} NOT IN"
    f" (SELECT {_DECODED} FROM requests WHERE {_DECODED} != '')",
    f"SELECT count() FROM requests AS a WHERE EXISTS (SELECT 1 FROM requests AS b"
    f" WHERE {_A} = {_B})",
    f"SELECT {_DECODED} AS x, count() FROM requests GROUP BY x HAVING x != '' ORDER BY x",
    f"SELECT {_DECODED} AS x, count() FROM requests GROUP BY GROUPING SETS ((x), (model))"
    " ORDER BY 1, 2",
    "SELECT count() FROM (SELECT * FROM requests UNION ALL SELECT * FROM requests)"
    f" WHERE {_DECODED} != ''",
    f"SELECT count() FROM (SELECT * FROM requests EXCEPT SELECT * FROM requests"
    f" WHERE {_DECODED} != '')",
    f"SELECT count() FROM (SELECT DISTINCT {_DECODED} AS x FROM requests) WHERE x != ''",
    f"SELECT count() FROM (SELECT DISTINCT finish_reason FROM requests) WHERE {_DECODED} != ''",
    f"SELECT trace_id FROM requests ORDER BY {_DECODED}, trace_id LIMIT 3",
    f"SELECT trace_id, row_number() OVER (PARTITION BY {_DECODED} ORDER BY time) AS r FROM requests"
    " QUALIFY r = 1 ORDER BY trace_id",
    "SELECT count() FROM (SELECT *, row_number() OVER (PARTITION BY model ORDER BY time) AS r"
    f" FROM requests) WHERE r = 1 AND {_DECODED} != ''",
    "SELECT count() FROM requests ARRAY JOIN mapKeys(refused_numbers) AS n WHERE toUInt8(n) < 9",
    "SELECT count() FROM requests LEFT ARRAY JOIN refused_numbers.keys AS n WHERE toUInt8(n) < 9",
    "SELECT count() FROM (SELECT finish_reason, count() FROM requests GROUP BY finish_reason)"
    f" WHERE {_DECODED} != ''",
    f"SELECT {_DECODED} AS x, count() FROM requests GROUP BY x ORDER BY x LIMIT 1",
    f"SELECT {_DECODED} AS x FROM requests GROUP BY x ORDER BY x DESC LIMIT 1",
    f"SELECT length({_DECODED}) AS x, trace_id FROM requests ORDER BY trace_id LIMIT 2",
    f"SELECT trace_id FROM requests WHERE notEmpty({_DECODED}) ORDER BY trace_id LIMIT 1 BY model",
    f"SELECT countIf({_DECODED} != ''), min({_DECODED}), uniq({_DECODED}) FROM requests",
    f"SELECT count() FROM (SELECT * FROM requests LIMIT 100) WHERE {_DECODED} != ''",
    f"SELECT count() FROM requests"
    f" WHERE status = 'ok' AND {_DECODED} != '' AND trace_id LIKE 'own%'",
    f"SELECT count() FROM requests WHERE status = 'bad' OR {_DECODED} != ''",
    "SELECT count() FROM requests WHERE toUInt8(service) < 99 AND time > '2020-01-01'",
    "SELECT count() FROM requests WHERE trace_id IN ('own001', 'own002') AND toUInt8(service) < 99",
    f"WITH x AS (SELECT {_DECODED} AS d FROM requests) SELECT count() FROM x AS a JOIN x AS b"
    " ON a.d = b.d",
    f"WITH RECURSIVE t AS (SELECT {_DECODED} AS d, 1 AS n FROM requests UNION ALL"
    " SELECT d, n + 1 FROM t WHERE n < 2) SELECT count() FROM t",
    "SELECT count() FROM spans AS s JOIN requests AS r ON s.TraceId = r.trace_id"
    " WHERE base64Decode(r.finish_reason) != '' AND toUInt8(s.Events.Name[1]) < 9",
    "SELECT Events.Name FROM spans"
    " WHERE toUInt8(Events.Name[1]) < 9 ORDER BY Timestamp DESC LIMIT 3",
    "SELECT count() FROM spans WHERE toUInt8(Events.Name[1]) < 9"
    " AND mapContains(SpanAttributes, 'evenkeel.tenant')",
    f"SELECT max(time) FROM requests WHERE {_DECODED} != ''",
    f"SELECT count() FROM requests FINAL WHERE {_DECODED} != ''",
    "SELECT sum(num_requests) FROM requests_1m WHERE toUInt8(substring(model, 2)) < 9",
    "SELECT model FROM requests_1m"
    " WHERE toUInt8(substring(model, 2)) < 9 ORDER BY minute, model LIMIT 2",
    "SELECT model FROM requests"
    " WHERE toUInt8(substring(model, 2)) < 9 ORDER BY model, time LIMIT 2",
)  # fmt: skip

SHAPES = (
    *(sql.format(kind) for sql in _JOINED for kind in _JOINS),
    *(
        f"SELECT trace_id, {_DECODED}, * FROM requests {where} ORDER BY {order} LIMIT 3"
        for order in _ORDERS
        for where in (
            "",
            f"WHERE {_DECODED} != ''",
            f"WHERE time > '2020-01-01' AND {_DECODED} != ''",
        )
    ),
    *_OTHERS,
)
