-- The newest first appearance of a prompt's version within a span, where another came before it.
SELECT
    prompt_name,
    prompt_version,
    toUnixTimestamp64Nano(min(time)) AS first_ns,
    lagInFrame(toString(prompt_version)) OVER (PARTITION BY prompt_name ORDER BY min(time)) AS before
FROM requests
WHERE time >= fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC')
    AND time < fromUnixTimestamp64Nano({to_ns:Int64}, 'UTC')
    AND prompt_name IS NOT NULL
    AND prompt_version IS NOT NULL
    AND ({model:String} = '' OR model = {model:String})
GROUP BY prompt_name, prompt_version
ORDER BY before != '' DESC, first_ns DESC
LIMIT 1
