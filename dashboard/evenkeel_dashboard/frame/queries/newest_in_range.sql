-- When the newest request of a range arrived; NULL without one. The rollups say in which minute or hour
-- to look, and are the answer if they are all that is left of the range.
WITH
toStartOfMinute(fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')) AS last_minute,
(
    SELECT toInt64(toUnixTimestamp(maxOrNull(r.minute))) * 1000
    FROM requests_rolled(from_ms = {from_ms:Int64}, to_ms = {to_ms:Int64}, step_s = 3600) AS r
    -- Of the minute in which the range ends, the requests may have come later.
    WHERE r.minute < last_minute
        AND ({model:String} = '' OR model = {model:String})
        AND ({tenant:String} = '' OR tenant = {tenant:String})
        AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
        AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
) AS rolled_ms
SELECT ifNull(
    (
        SELECT toUnixTimestamp64Milli(maxOrNull(time))
        FROM requests
        WHERE time >= fromUnixTimestamp64Milli(greatest({from_ms:Int64}, ifNull(rolled_ms, 0)), 'UTC')
            AND time < fromUnixTimestamp64Milli({to_ms:Int64}, 'UTC')
            -- The rollups do not have the minutes in which the range begins and ends.
            AND (time >= last_minute
                OR time < fromUnixTimestamp64Milli(ifNull(rolled_ms + 3600000, {from_ms:Int64} + 60000), 'UTC'))
            AND ({model:String} = '' OR model = {model:String})
            AND ({tenant:String} = '' OR tenant = {tenant:String})
            AND ({prompt:String} = '' OR concat(prompt_name, '@', prompt_version) = {prompt:String})
            AND ({slo_class:String} = '' OR slo_class = {slo_class:String})
    ),
    rolled_ms) AS newest_ms
