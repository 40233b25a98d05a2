-- Hashes of the Merkle tree, of every eighth level: level 8, of 256 records each,
-- 16 and so on. A tile is 256 of them side by side; what lies between two stored
-- levels is made from one tile, and what lies below level 8 from the record_hash
-- of at most 256 rows of evidence. So a proof takes a few short stretches, each in
-- one or two granules.
--
-- Before, every fourth level was stored, in tree_nodes, by its tlog index, which
-- scatters a tile over the table. Those hashes stay there, and the ones of the levels
-- above are copied, once; readers ask tree_nodes for what is missing here, which
-- can be because an auditor of an earlier version was still at work.

-- +goose NO TRANSACTION
-- +goose Up

CREATE TABLE IF NOT EXISTS tree_hashes
(
    shard LowCardinality(String),
    level UInt8,
    tile  UInt64 CODEC(Delta, ZSTD),
    n     UInt64 CODEC(Delta, ZSTD),
    hash  FixedString(32) CODEC(NONE)
)
ENGINE = MergeTree
ORDER BY (shard, level, tile, n)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 256;

-- leaf: the last leaf whose own index, 2 * leaf - bitCount(leaf), is not above idx;
-- the hashes after it are of the subtrees that it completes, in order.
INSERT INTO tree_hashes (shard, level, tile, n, hash)
SELECT shard, level, intDiv(n, 256) AS tile, n, hash
FROM
(
    SELECT shard, hash,
        arrayMax(k -> if(2 * (intDiv(idx, 2) + k) - bitCount(intDiv(idx, 2) + k) <= idx, intDiv(idx, 2) + k, 0), range(34)) AS leaf,
        toUInt8(idx - (2 * leaf - bitCount(leaf))) AS level,
        bitShiftRight(leaf, level) AS n
    FROM tree_nodes
)
WHERE level > 0 AND level % 8 = 0 AND (SELECT count() FROM tree_hashes) = 0;

-- What changed in what decides is a handful of records among millions, and is read
-- for every session that is proved: the keys, and which of them were taken back. The
-- index tells their granules from those with no control records but the many
-- that say where the correlator stands; DB.ScanSubject asks in the same words.
ALTER TABLE evidence ADD INDEX IF NOT EXISTS by_change
    (multiIf(kind != 'control', 0, endsWith(subject, '.cursor'), 1, endsWith(subject, '.tick'), 2, 3)) TYPE minmax GRANULARITY 16;

ALTER TABLE evidence MATERIALIZE INDEX by_change;

-- +goose Down
ALTER TABLE evidence DROP INDEX IF EXISTS by_change;
DROP TABLE IF EXISTS tree_hashes;
