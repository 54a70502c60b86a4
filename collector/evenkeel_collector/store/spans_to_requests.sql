-- The query of the view spans_to_requests with the columns that no migration has; request_columns.py
-- fills it in. Numbers follow the rule in 02_requests.sql.
WITH
    ((text, low, high, is_whole) -> if(toFloat64OrNull(text) BETWEEN low AND high
        AND toFloat64OrNull(text) = if(is_whole, floor(toFloat64OrNull(text)), toFloat64OrNull(text)),
        toFloat64OrNull(text), NULL)) AS number_of,
    ((text, low, high, is_whole) -> if(arrayAll(x -> ifNull(
            x BETWEEN low AND high AND x = if(is_whole, floor(x), x), 0),
            JSONExtract(text, 'Array(Nullable(Float64))') AS elements),
        elements, [])) AS list_of,
    (text -> multiIf(isNull(toFloat64OrNull(text)), 'not_a_number',
        isFinite(toFloat64OrZero(text)), 'out_of_range', 'not_finite')) AS reason_of,
    (text -> if(empty(JSONExtract(text, 'Array(Nullable(Float64))')), 'not_a_number', 'out_of_range'))
        AS list_reason_of
SELECT
    * EXCEPT (refused_numbers, added_from),
    $columns,
    mapUpdate(known.refused_numbers, CAST(arrayFilter(refused -> refused.2 != '', [$refused]),
        'Map(LowCardinality(String), LowCardinality(String))')) AS refused_numbers
FROM (
$query
) AS known
