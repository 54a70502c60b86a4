-- The currency of the newest prices; '' without any.
SELECT argMax(currency, number) AS currency FROM prices
