-- Version 5: silences by any label, with their author. Of those made before, the SLO is the matcher.
ALTER TABLE silences ADD COLUMN matchers TEXT NOT NULL DEFAULT '';
ALTER TABLE silences ADD COLUMN author TEXT NOT NULL DEFAULT '';

PRAGMA user_version = 5;
