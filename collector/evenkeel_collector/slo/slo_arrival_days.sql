-- How many requests that began on each day are stored: the key is the partition's, so the store
-- answers without reading a row.
SELECT toDate(time) AS day, count() AS num_requests
FROM requests
GROUP BY day
