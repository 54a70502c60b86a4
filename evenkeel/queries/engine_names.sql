-- The tenants with requests in a range, and the models with engine steps: those with most first, but the tenant
-- that is asked for before all others. Read if nothing was found under a name, which may be mistyped.
SELECT
    (
        SELECT groupArray(name)
        FROM
        (
            SELECT toString(ifNull(requests.tenant, '')) AS name
            FROM requests
            WHERE requests.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                AND requests.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            GROUP BY name
            ORDER BY name = {tenant:String} DESC, count() DESC, name
            LIMIT 1000
        )
    ) AS tenants,
    (
        SELECT groupArray(name)
        FROM
        (
            SELECT toString(engine_steps.model) AS name
            FROM engine_steps
            WHERE engine_steps.time >= fromUnixTimestamp64Milli({from_ms:Int64}, 'UTC')
                AND engine_steps.time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            GROUP BY name
            ORDER BY count() DESC, name
            LIMIT 1000
        )
    ) AS models
