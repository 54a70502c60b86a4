-- Version 3. What stands in the groups of receivers that want alerts together. A member stays while
-- it is untold, or while it fires; history is in transitions, what was sent is in outbox.
CREATE TABLE group_members (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    notification_id TEXT NOT NULL,    -- the transition's
    receiver TEXT NOT NULL,
    group_labels TEXT NOT NULL,       -- JSON of the labels that make the group, sorted
    fingerprint TEXT NOT NULL,
    status TEXT NOT NULL,             -- firing, resolved
    body TEXT NOT NULL,               -- the notification as it were for this alert alone
    created_ns INTEGER NOT NULL,
    is_told INTEGER NOT NULL DEFAULT 0,
    UNIQUE (notification_id, receiver)
) STRICT;

CREATE INDEX outbox_by_alert ON outbox (receiver, fingerprint, number);

-- What the file in force has alerts of, so that a silence of something else is refused.
CREATE TABLE subjects (name TEXT PRIMARY KEY) STRICT;

PRAGMA user_version = 3;
