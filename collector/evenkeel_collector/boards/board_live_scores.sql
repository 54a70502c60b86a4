-- Mean score of each live evaluation, weighted by 1 / sampling probability; unscored rows count
-- for nothing. One that a tenant's token sent is named with its tenant.
SELECT
    $__timeInterval(time) AS time,
    concat(live_evaluations.monitor, if(sender = '', '', concat(' (', sender, ')'))) AS monitor,
    sumIf(score / probability, isNotNull(score)) / nullIf(sumIf(1 / probability, isNotNull(score)), 0)
        AS mean_score
FROM evenkeel.live_evaluations
WHERE $__timeFilter(live_evaluations.time)
GROUP BY time, monitor
ORDER BY time, monitor
