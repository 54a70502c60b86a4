-- The bill of the requests of a range of whole minutes, and what their cached tokens saved.
SELECT
    sum(priced.cost) AS cost,
    countIf(isNull(priced.cost) AND status != 'shed') AS num_without,
    sumIf(cached_tokens, isNotNull(priced.cost)) * 1.5 / 1e6 AS saved
FROM requests AS priced
WHERE time >= toDateTime(intDiv({from_ms:Int64}, 60000) * 60, 'UTC')
    AND time < toDateTime(intDiv({to_ms:Int64} + 59999, 60000) * 60, 'UTC')
