-- As before, but rows that take events back count, too: a client's request is withdrawn from the rollups if
-- the server's record of its call comes after it was counted (settler.py).
CREATE OR REPLACE VIEW slo_counts_1m AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    minute, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service, engine,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1m
ARRAY JOIN objectives AS objective
WHERE good != 0 OR bad != 0;

CREATE OR REPLACE VIEW slo_counts_1h AS
WITH (
    SELECT groupArray((slo, key, weight)) FROM slo_objectives
    WHERE number = (SELECT max(number) FROM slo_objectives) AND slo != ''
) AS objectives
SELECT
    hour, objective.1 AS slo, model, tenant, slo_class, route, prompt_name, prompt_version,
    service, engine,
    objective.3 * slo_good[objective.2] AS good, objective.3 * slo_bad[objective.2] AS bad
FROM requests_1h
ARRAY JOIN objectives AS objective
WHERE good != 0 OR bad != 0;
