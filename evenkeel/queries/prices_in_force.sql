-- The newest set of prices.
SELECT kind, name, currency, valid_from, valid_until, input, cached_input, cache_write, output, reasoning,
    hour, kwh, devices, idle, source, read, toUnixTimestamp64Milli(since) AS since_ms
FROM prices
WHERE number = (SELECT max(number) FROM prices)
ORDER BY kind DESC, name, valid_from
