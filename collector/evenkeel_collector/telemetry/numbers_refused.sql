-- Numbers that the store refused, by where they came from.
SELECT source, field, reason, sum(num) AS num
FROM refused_numbers
GROUP BY ALL
ORDER BY ALL
