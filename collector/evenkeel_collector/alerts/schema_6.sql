-- Version 6. Firings whose evidence is being gathered, or was a moment ago: what fires is told at
-- once, and its notifications are completed when the evidence is there.
CREATE TABLE evidence (
    alert_id TEXT PRIMARY KEY,        -- one firing
    fired_ns INTEGER NOT NULL,
    facts TEXT,                       -- JSON of the annotations; NULL while they are gathered
    gathered_ns INTEGER
) STRICT;

PRAGMA user_version = 6;
