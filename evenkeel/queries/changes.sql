-- What changed last: the first appearance of a prompt's version, or of a model, where another was
-- there before it; the newest first.
SELECT kind, name, before, first_ms
FROM
(
    SELECT
        'prompt' AS kind,
        concat(prompt_name, '@', prompt_version) AS name,
        lagInFrame(toString(prompt_version)) OVER (
            PARTITION BY prompt_name ORDER BY first_ms ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING)
            AS before,
        first_ms
    FROM
    (
        SELECT prompt_name, prompt_version, toUnixTimestamp(min(minute)) * 1000 AS first_ms
        FROM requests_1m
        WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
            AND minute < toDateTime(intDiv({to_ms:Int64}, 1000))
            AND prompt_name != '' AND prompt_version != ''
        GROUP BY prompt_name, prompt_version
    )
    UNION ALL
    SELECT
        'model' AS kind,
        model AS name,
        lagInFrame(toString(model)) OVER (
            ORDER BY first_ms ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING) AS before,
        first_ms
    FROM
    (
        SELECT model, toUnixTimestamp(min(minute)) * 1000 AS first_ms
        FROM requests_1m
        WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
            AND minute < toDateTime(intDiv({to_ms:Int64}, 1000))
        GROUP BY model
    )
)
WHERE before != '' AND first_ms > {from_ms:Int64} + 120000
ORDER BY first_ms DESC
LIMIT 8
