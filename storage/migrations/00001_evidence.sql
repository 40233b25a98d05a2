-- Every statement can be run again: two processes may migrate at the same time.

-- +goose NO TRANSACTION
-- +goose Up

-- One row for every message of the log; (shard, seq) is meant to be unique, and
-- the engine is not asked to make it so: a second row for a sequence must show. To
-- read one record a whole granule is read, so granules are small. (That cannot be
-- changed later: databases made before this was set have larger ones, and do.)
CREATE TABLE IF NOT EXISTS evidence
(
    shard         LowCardinality(String),
    seq           UInt64 CODEC(Delta, ZSTD),
    tenant        LowCardinality(String),
    session       String CODEC(ZSTD),
    session_index Nullable(UInt64) CODEC(ZSTD),
    kind          LowCardinality(String),
    subject       String CODEC(ZSTD),
    broker_time   DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    body_digest   String CODEC(ZSTD),
    record        String CODEC(ZSTD(3)),
    record_hash   FixedString(32) CODEC(NONE)
)
ENGINE = MergeTree
ORDER BY (shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 512;

-- The stored hashes of the Merkle log, by their tlog index. A restarted writer
-- may store a hash again; readers take one and refuse two that differ.
CREATE TABLE IF NOT EXISTS tree_nodes
(
    shard LowCardinality(String),
    idx   UInt64 CODEC(Delta, ZSTD),
    hash  FixedString(32) CODEC(NONE)
)
ENGINE = MergeTree
ORDER BY (shard, idx)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 256;

CREATE TABLE IF NOT EXISTS checkpoints
(
    shard   LowCardinality(String),
    size    UInt64,
    root    FixedString(32),
    note    String CODEC(ZSTD),
    created DateTime64(9, 'UTC')
)
ENGINE = MergeTree
ORDER BY (shard, size, created)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1;

-- The tables from here on are derived from evidence by materialized views, in the
-- same insert and under the same de-duplication token. They can be rebuilt from
-- it (DB.Repair), so they go without fsync (but see 00008_synced.sql).
CREATE TABLE IF NOT EXISTS evidence_chain
(
    tenant        LowCardinality(String),
    session       String CODEC(ZSTD),
    shard         LowCardinality(String),
    seq           UInt64 CODEC(Delta, ZSTD),
    session_index Nullable(UInt64) CODEC(ZSTD),
    record_hash   FixedString(32) CODEC(NONE)
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS evidence_chain_mv TO evidence_chain AS
SELECT tenant, session, shard, seq, session_index, record_hash
FROM evidence
WHERE session != '' OR session_index IS NOT NULL;

-- +goose Down
DROP VIEW IF EXISTS evidence_chain_mv;
DROP TABLE IF EXISTS evidence_chain;
DROP TABLE IF EXISTS checkpoints;
DROP TABLE IF EXISTS tree_nodes;
DROP TABLE IF EXISTS evidence;
