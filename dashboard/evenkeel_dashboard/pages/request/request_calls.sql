-- The requests of one trace, which are counted: the other spans of the same calls are views of them.
SELECT * EXCEPT (drafted_by_position, accepted_by_position, emission_time_s, emission_tokens, ledger,
    refused_numbers)
FROM evenkeel.requests
WHERE trace_id = {trace_id:String}
  AND time BETWEEN fromUnixTimestamp64Milli({from_ms:Int64}) AND fromUnixTimestamp64Milli({to_ms:Int64})
ORDER BY time
LIMIT {limit:UInt32}
