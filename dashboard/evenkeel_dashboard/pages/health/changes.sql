-- Recent changes, newest first: the first appearance of a prompt version, a model, or a service
-- instance (a deploy, a restart, or a new replica), if another one existed before it. Instances are
-- detected from their engines' step records. What is only evaluated has not
-- changed. Up to five of each kind: a restart of many replicas does not hide a new prompt.
SELECT kind, name, before, first_ms
FROM
(
    SELECT
        'prompt' AS kind,
        concat(prompt_name, '@', prompt_version) AS name,
        lagInFrame(toString(prompt_version)) OVER (
            PARTITION BY prompt_name ORDER BY first_ms, length(prompt_version), prompt_version
            ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING)
            AS before,
        first_ms
    FROM
    (
        SELECT prompt_name, prompt_version, toUnixTimestamp(min(minute)) * 1000 AS first_ms
        FROM requests_1m
        WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
            AND minute < toDateTime(intDiv({to_ms:Int64}, 1000))
            AND prompt_name != '' AND prompt_version != '' AND route != 'eval'
        GROUP BY prompt_name, prompt_version
    )
    UNION ALL
    SELECT
        'model' AS kind,
        model AS name,
        lagInFrame(toString(model)) OVER (
            ORDER BY first_ms, model ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING) AS before,
        first_ms
    FROM
    (
        SELECT model, toUnixTimestamp(min(minute)) * 1000 AS first_ms
        FROM requests_1m
        WHERE minute >= toDateTime(intDiv({from_ms:Int64}, 1000))
            AND minute < toDateTime(intDiv({to_ms:Int64}, 1000))
            AND route != 'eval'
        GROUP BY model
    )
    UNION ALL
    SELECT
        'server' AS kind,
        concat(service, '@', instance) AS name,
        lagInFrame(toString(instance)) OVER (
            PARTITION BY service ORDER BY first_ms, instance ROWS BETWEEN 1 PRECEDING AND 1 PRECEDING)
            AS before,
        first_ms
    FROM
    (
        SELECT service, instance, toUnixTimestamp(min(time)) * 1000 AS first_ms
        FROM engine_steps
        WHERE time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            AND instance != ''
        GROUP BY service, instance
    )
)
WHERE before != '' AND first_ms > {from_ms:Int64} + 120000
ORDER BY first_ms DESC, kind, name
LIMIT 5 BY kind
