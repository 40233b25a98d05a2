-- The text of a record can expire: record is '' then, expiry the sequence of the
-- control record of the log that says why, and everything else stays. That control
-- record belongs to no tenant; concerns names the one whose auditors may read it.
-- Both columns are empty otherwise, and take no room in parts from before.
--
-- Parts that a mutation replaced are deleted after a minute; by default the engine
-- keeps them for eight, and with them what has expired.

-- +goose NO TRANSACTION
-- +goose Up

ALTER TABLE evidence
    ADD COLUMN IF NOT EXISTS expiry UInt64 DEFAULT 0 CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS concerns LowCardinality(String) DEFAULT '';

ALTER TABLE evidence MODIFY SETTING old_parts_lifetime = 60;
ALTER TABLE decisions MODIFY SETTING old_parts_lifetime = 60;
ALTER TABLE calls MODIFY SETTING old_parts_lifetime = 60;
ALTER TABLE findings MODIFY SETTING old_parts_lifetime = 60;
ALTER TABLE approvals MODIFY SETTING old_parts_lifetime = 60;
ALTER TABLE redactions MODIFY SETTING old_parts_lifetime = 60;

-- +goose Down
ALTER TABLE evidence DROP COLUMN IF EXISTS expiry, DROP COLUMN IF EXISTS concerns;
