-- Corrections of SLO counts, and who took an alert on: version 2.
CREATE TABLE corrections (
    id TEXT PRIMARY KEY,
    slo TEXT NOT NULL,                -- '' for every SLO
    from_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    reason TEXT NOT NULL,             -- maintenance, incident
    author TEXT NOT NULL,
    comment TEXT NOT NULL,
    created_ns INTEGER NOT NULL,
    revoked_ns INTEGER,
    revoked_by TEXT
) STRICT;

CREATE TABLE acknowledgements (
    alert_id TEXT PRIMARY KEY,        -- one firing: the next one wants its own
    author TEXT NOT NULL,
    comment TEXT NOT NULL,
    time_ns INTEGER NOT NULL
) STRICT;

PRAGMA user_version = 2;
