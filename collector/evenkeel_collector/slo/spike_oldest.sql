-- When the oldest stored request began; 0 without any. Before it there is no past to read.
SELECT toUnixTimestamp64Nano(min(time)) AS oldest_ns
FROM requests
