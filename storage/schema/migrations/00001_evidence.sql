-- The tables of the evidence and what is made from them. Every statement can be run
-- again: two processes may migrate at the same time.
--
-- A view that changes later gets a new name. MODIFY QUERY would do, but in 26.7 the
-- tokens of a view changed by it are others after the next restart of the server,
-- so that an insert tried again would be stored twice; and of two processes that
-- migrate at the same time the second one must find nothing to do.
--
-- tupleElement(r, 'x') and not r.x: the analysis of the latter costs 14 ms of
-- processor time for each view and insert, that of the former 2 ms.

-- +goose NO TRANSACTION
-- +goose Up

-- One row for every message of the log; (shard, seq) is meant to be unique, and
-- the engine is not asked to make it so: a second row for a sequence must show. To
-- read one record a whole granule is read, so granules are small.
--
-- Records are compressed at the level that costs least: level 1 takes a fifth less
-- processor time of an insert than level 3 does, and on texts of this kind, which
-- repeat whole members of each other, makes the column 6 % smaller, not larger.
--
-- redacted says whether something was taken out of a record, in a column of its own,
-- so that a query need not read the records to know.
--
-- The text of a record can expire: record is '' then, expiry the sequence of the
-- control record of the log that says why, and everything else stays. That control
-- record belongs to no tenant; concerns names the one whose auditors may read it.
-- Both columns are empty otherwise.
--
-- What changed in what decides is a handful of records among millions, and is read
-- for every session that is proved: the keys, and which of them were taken back. The
-- index by_change tells their granules from those with no control records but the many
-- that say where the correlator stands; DB.ScanSubject asks in the same words.
--
-- A merged or mutated part is synced before the parts that it replaces are deleted.
-- Parts that a mutation replaced are deleted after a minute; by default the engine
-- keeps them for eight, and with them what has expired.
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
    record        String CODEC(ZSTD),
    record_hash   FixedString(32) CODEC(NONE),
    redacted      Bool MATERIALIZED position(record, '"redactions":[{') > 0,
    expiry        UInt64 DEFAULT 0 CODEC(ZSTD),
    concerns      LowCardinality(String) DEFAULT '',
    INDEX by_change (multiIf(kind != 'control', 0, endsWith(subject, '.cursor'), 1, endsWith(subject, '.tick'), 2, 3)) TYPE minmax GRANULARITY 16
)
ENGINE = MergeTree
ORDER BY (shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 512, old_parts_lifetime = 60, min_rows_to_fsync_after_merge = 1;

-- Hashes of the Merkle tree, of every eighth level: level 8, of 256 records each,
-- 16 and so on. A tile is 256 of them side by side; what lies between two stored
-- levels is made from one tile, and what lies below level 8 from the record_hash
-- of at most 256 rows of evidence. So a proof takes a few short stretches, each in
-- one or two granules. A restarted writer may store a hash again; readers take one,
-- and of two that differ neither, but compute it from the records.
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
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, index_granularity = 256, min_rows_to_fsync_after_merge = 1;

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
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

-- What proofs need of records that their reader may not see: see DB.TreeNodes and
-- the views of auditors.
CREATE VIEW IF NOT EXISTS leaf_hashes AS SELECT shard, seq, record_hash FROM evidence;

-- The tables from here on are derived from evidence by materialized views (changes:
-- by the writer), in the same insert and under the same de-duplication token. They can be rebuilt from
-- it (DB.Repair), so they go without fsync. The exception is evidence_chain: the heads
-- of the sessions' chains are read from it while an auditor works, also from a server
-- that lost power meanwhile, and a head that is missing there would begin its chain
-- anew. A view writes its number into the column form; DB.Repair makes rows of an
-- earlier view anew.
CREATE TABLE IF NOT EXISTS evidence_chain
(
    tenant        LowCardinality(String),
    session       String CODEC(ZSTD),
    shard         LowCardinality(String),
    seq           UInt64 CODEC(Delta, ZSTD),
    session_index Nullable(UInt64) CODEC(ZSTD)
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, fsync_after_insert = 1, fsync_part_directory = 1, min_rows_to_fsync_after_merge = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS evidence_chain_mv TO evidence_chain AS
SELECT tenant, session, shard, seq, session_index
FROM evidence
WHERE session != '' OR session_index IS NOT NULL;

-- One typed table for each kind of record that auditors ask for. Tenant and session
-- are the evidence row's (they come from the subject, which the broker enforced),
-- everything else is what the record says.
CREATE TABLE IF NOT EXISTS decisions
(
    tenant                 LowCardinality(String),
    session                String CODEC(ZSTD),
    shard                  LowCardinality(String),
    seq                    UInt64 CODEC(Delta, ZSTD),
    broker_time            DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    decision_id            String CODEC(ZSTD),
    event_id               String CODEC(ZSTD),
    protocol               LowCardinality(String),
    source                 LowCardinality(String),
    gateway                LowCardinality(String),
    agent                  String CODEC(ZSTD),
    tool_call_id           String CODEC(ZSTD),
    occurrence             UInt32,
    tool                   LowCardinality(String),
    action                 LowCardinality(String),
    resource_kind          LowCardinality(String),
    args_digest            String CODEC(ZSTD),
    request_digest         String CODEC(ZSTD),
    verdict                LowCardinality(String),
    native_verdict         LowCardinality(String),
    `reasons.evaluator`    Array(LowCardinality(String)),
    `reasons.code`         Array(LowCardinality(String)),
    `reasons.path`         Array(String),
    `reasons.policy`       Array(String),
    policy_name            LowCardinality(String),
    policy_revision        UInt64,
    policy_digest          String CODEC(ZSTD),
    mandate_id             String CODEC(ZSTD),
    mandate_hash           String CODEC(ZSTD),
    approval_workflow_id   String CODEC(ZSTD),
    approval_status        LowCardinality(String),
    approval_action_id     String CODEC(ZSTD),
    approval_requested_at  Nullable(DateTime64(9, 'UTC')),
    approval_expires_at    Nullable(DateTime64(9, 'UTC')),
    approval_resume_policy LowCardinality(String),
    received_at            Nullable(DateTime64(9, 'UTC')),
    decided_at             Nullable(DateTime64(9, 'UTC')),
    expires_at             Nullable(DateTime64(9, 'UTC')),
    receipt_hash           String CODEC(ZSTD),
    durability             LowCardinality(String),
    trace                  String CODEC(ZSTD),
    `reasons.action`       Array(LowCardinality(String)),
    `reasons.would`        Array(LowCardinality(String)),
    canonical_tool         LowCardinality(String),
    publishers_revision    UInt64,
    publishers_digest      String CODEC(ZSTD),
    `counts.key`           Array(String),
    `counts.window_ms`     Array(Int64),
    `counts.amount`        Array(Int64),
    `counts.total`         Array(Int64),
    inputs                 String CODEC(ZSTD),
    mode                   LowCardinality(String),
    would                  LowCardinality(String),
    form                   UInt8,
    INDEX by_tool_call_id tool_call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_decision_id decision_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_event_id event_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1,
    INDEX by_agent agent TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_workflow approval_workflow_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_mandate mandate_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60;

CREATE MATERIALIZED VIEW IF NOT EXISTS decisions_mv TO decisions AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'decision_id') AS decision_id,
    tupleElement(r, 'event_id') AS event_id,
    tupleElement(r, 'protocol') AS protocol,
    tupleElement(r, 'source') AS source,
    tupleElement(r, 'gateway') AS gateway,
    tupleElement(r, 'agent') AS agent,
    tupleElement(r, 'tool_call_id') AS tool_call_id,
    tupleElement(r, 'occurrence') AS occurrence,
    tupleElement(r, 'tool') AS tool,
    tupleElement(r, 'action') AS action,
    tupleElement(r, 'resource_kind') AS resource_kind,
    tupleElement(r, 'args_digest') AS args_digest,
    tupleElement(r, 'request_digest') AS request_digest,
    tupleElement(r, 'verdict') AS verdict,
    tupleElement(r, 'native_verdict') AS native_verdict,
    tupleElement(tupleElement(r, 'reasons'), 'evaluator') AS `reasons.evaluator`,
    tupleElement(tupleElement(r, 'reasons'), 'code') AS `reasons.code`,
    tupleElement(tupleElement(r, 'reasons'), 'path') AS `reasons.path`,
    tupleElement(tupleElement(r, 'reasons'), 'policy') AS `reasons.policy`,
    tupleElement(tupleElement(r, 'policy'), 'name') AS policy_name,
    tupleElement(tupleElement(r, 'policy'), 'revision') AS policy_revision,
    tupleElement(tupleElement(r, 'policy'), 'digest') AS policy_digest,
    tupleElement(tupleElement(r, 'mandate'), 'id') AS mandate_id,
    tupleElement(tupleElement(r, 'mandate'), 'hash') AS mandate_hash,
    tupleElement(tupleElement(r, 'approval'), 'workflow_id') AS approval_workflow_id,
    tupleElement(tupleElement(r, 'approval'), 'status') AS approval_status,
    tupleElement(tupleElement(r, 'approval'), 'action_id') AS approval_action_id,
    parseDateTime64BestEffortOrNull(tupleElement(tupleElement(r, 'approval'), 'requested_at'), 9, 'UTC') AS approval_requested_at,
    parseDateTime64BestEffortOrNull(tupleElement(tupleElement(r, 'approval'), 'expires_at'), 9, 'UTC') AS approval_expires_at,
    tupleElement(tupleElement(r, 'approval'), 'resume_policy') AS approval_resume_policy,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'received_at'), 9, 'UTC') AS received_at,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'decided_at'), 9, 'UTC') AS decided_at,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'expires_at'), 9, 'UTC') AS expires_at,
    tupleElement(r, 'receipt_hash') AS receipt_hash,
    tupleElement(r, 'durability') AS durability,
    tupleElement(r, 'trace') AS trace,
    tupleElement(tupleElement(r, 'reasons'), 'action') AS `reasons.action`,
    tupleElement(tupleElement(r, 'reasons'), 'would') AS `reasons.would`,
    tupleElement(r, 'canonical_tool') AS canonical_tool,
    tupleElement(tupleElement(r, 'publishers'), 'revision') AS publishers_revision,
    tupleElement(tupleElement(r, 'publishers'), 'digest') AS publishers_digest,
    tupleElement(tupleElement(r, 'counts'), 'key') AS `counts.key`,
    tupleElement(tupleElement(r, 'counts'), 'window_ms') AS `counts.window_ms`,
    tupleElement(tupleElement(r, 'counts'), 'amount') AS `counts.amount`,
    tupleElement(tupleElement(r, 'counts'), 'total') AS `counts.total`,
    tupleElement(r, 'inputs') AS inputs,
    tupleElement(r, 'mode') AS mode,
    tupleElement(r, 'would') AS would,
    toUInt8(1) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, JSONExtract(record, 'body', 'Tuple(
        decision_id String, event_id String, protocol String, source String, gateway String, agent String, tool_call_id String,
        occurrence UInt32, tool String, action String, resource_kind String, args_digest String,
        request_digest String, verdict String, native_verdict String,
        reasons Array(Tuple(evaluator String, code String, path String, policy String, action String, would String)),
        policy Tuple(name String, revision UInt64, digest String), mandate Tuple(id String, hash String),
        approval Tuple(workflow_id String, status String, action_id String, requested_at String, expires_at String, resume_policy String),
        received_at String, decided_at String, expires_at String, receipt_hash String, durability String, trace String,
        canonical_tool String, publishers Tuple(revision UInt64, digest String),
        counts Array(Tuple(key String, window_ms Int64, amount Int64, total Int64)), inputs String, mode String, would String
    )') AS r
    FROM evidence
    WHERE kind = 'decision'
);

CREATE TABLE IF NOT EXISTS calls
(
    tenant                  LowCardinality(String),
    session                 String CODEC(ZSTD),
    shard                   LowCardinality(String),
    seq                     UInt64 CODEC(Delta, ZSTD),
    broker_time             DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    call_id                 String CODEC(ZSTD),
    source                  LowCardinality(String),
    protocol                LowCardinality(String),
    agent                   String CODEC(ZSTD),
    tool_call_id            String CODEC(ZSTD),
    occurrence              UInt32,
    tool                    LowCardinality(String),
    state                   LowCardinality(String),
    outcome                 LowCardinality(String),
    verdict                 LowCardinality(String),
    decision_id             String CODEC(ZSTD),
    decision_seq            UInt64,
    execution_seq           UInt64,
    admitted_digest         String CODEC(ZSTD),
    executed_digest         String CODEC(ZSTD),
    match                   LowCardinality(String),
    inferred                Bool,
    weak_scope              Bool,
    findings                Array(LowCardinality(String)),
    `timeline.step`         Array(LowCardinality(String)),
    `timeline.seq`          Array(UInt64),
    `timeline.at`           Array(Nullable(DateTime64(9, 'UTC'))),
    `timeline.event_id`     Array(String),
    protocols               Array(LowCardinality(String)),
    match_reason            LowCardinality(String),
    `differences.pointer`   Array(String),
    `differences.kind`      Array(LowCardinality(String)),
    more_differences        UInt32,
    attempt                 UInt32,
    retried_from            String CODEC(ZSTD),
    retried_to              String CODEC(ZSTD),
    trace                   String CODEC(ZSTD),
    parent_call_id          String CODEC(ZSTD),
    parent_source           LowCardinality(String),
    parent_session          String CODEC(ZSTD),
    parent_by               LowCardinality(String),
    requested_to_decided_us Nullable(Int64),
    decided_to_started_us   Nullable(Int64),
    started_to_completed_us Nullable(Int64),
    claimed                 String CODEC(ZSTD),
    `timeline.protocol`     Array(LowCardinality(String)),
    form                    UInt8,
    binding                 LowCardinality(String),
    INDEX by_tool_call_id tool_call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_call_id call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_decision_id decision_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1,
    INDEX by_agent agent TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60;

CREATE MATERIALIZED VIEW IF NOT EXISTS calls_mv TO calls AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'call_id') AS call_id,
    tupleElement(r, 'source') AS source,
    tupleElement(r, 'protocol') AS protocol,
    tupleElement(r, 'agent') AS agent,
    tupleElement(r, 'tool_call_id') AS tool_call_id,
    tupleElement(r, 'occurrence') AS occurrence,
    tupleElement(r, 'tool') AS tool,
    tupleElement(r, 'state') AS state,
    tupleElement(r, 'outcome') AS outcome,
    tupleElement(r, 'verdict') AS verdict,
    tupleElement(r, 'decision_id') AS decision_id,
    tupleElement(r, 'decision_seq') AS decision_seq,
    tupleElement(r, 'execution_seq') AS execution_seq,
    tupleElement(r, 'admitted_digest') AS admitted_digest,
    tupleElement(r, 'executed_digest') AS executed_digest,
    tupleElement(r, 'match') AS match,
    tupleElement(r, 'inferred') AS inferred,
    tupleElement(r, 'weak_scope') AS weak_scope,
    tupleElement(r, 'findings') AS findings,
    tupleElement(tupleElement(r, 'timeline'), 'step') AS `timeline.step`,
    tupleElement(tupleElement(r, 'timeline'), 'seq') AS `timeline.seq`,
    arrayMap(t -> parseDateTime64BestEffortOrNull(t, 9, 'UTC'), tupleElement(tupleElement(r, 'timeline'), 'at')) AS `timeline.at`,
    tupleElement(tupleElement(r, 'timeline'), 'event_id') AS `timeline.event_id`,
    tupleElement(tupleElement(r, 'timeline'), 'protocol') AS `timeline.protocol`,
    tupleElement(r, 'protocols') AS protocols,
    tupleElement(r, 'match_reason') AS match_reason,
    tupleElement(tupleElement(r, 'differences'), 'pointer') AS `differences.pointer`,
    tupleElement(tupleElement(r, 'differences'), 'kind') AS `differences.kind`,
    tupleElement(r, 'more_differences') AS more_differences,
    tupleElement(r, 'attempt') AS attempt,
    tupleElement(r, 'retried_from') AS retried_from,
    tupleElement(r, 'retried_to') AS retried_to,
    tupleElement(r, 'trace') AS trace,
    tupleElement(tupleElement(r, 'parent'), 'call_id') AS parent_call_id,
    tupleElement(tupleElement(r, 'parent'), 'source') AS parent_source,
    tupleElement(tupleElement(r, 'parent'), 'session') AS parent_session,
    tupleElement(tupleElement(r, 'parent'), 'by') AS parent_by,
    tupleElement(tupleElement(r, 'durations'), 'requested_to_decided_us') AS requested_to_decided_us,
    tupleElement(tupleElement(r, 'durations'), 'decided_to_started_us') AS decided_to_started_us,
    tupleElement(tupleElement(r, 'durations'), 'started_to_completed_us') AS started_to_completed_us,
    tupleElement(r, 'claimed') AS claimed,
    tupleElement(r, 'binding') AS binding,
    toUInt8(1) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, JSONExtract(record, 'body', 'Tuple(
        call_id String, source String, protocol String, agent String, tool_call_id String, occurrence UInt32,
        tool String, state String, outcome String, verdict String, decision_id String, decision_seq UInt64,
        execution_seq UInt64, admitted_digest String, executed_digest String, match String, inferred Bool,
        weak_scope Bool, findings Array(String),
        timeline Array(Tuple(step String, seq UInt64, at String, event_id String, protocol String)),
        protocols Array(String), match_reason String, differences Array(Tuple(pointer String, kind String)), more_differences UInt32,
        attempt UInt32, retried_from String, retried_to String, trace String,
        parent Tuple(call_id String, source String, session String, by String),
        durations Tuple(requested_to_decided_us Nullable(Int64), decided_to_started_us Nullable(Int64), started_to_completed_us Nullable(Int64)),
        claimed String, binding String
    )') AS r
    FROM evidence
    WHERE kind = 'call'
);

CREATE TABLE IF NOT EXISTS findings
(
    tenant       LowCardinality(String),
    session      String CODEC(ZSTD),
    shard        LowCardinality(String),
    seq          UInt64 CODEC(Delta, ZSTD),
    broker_time  DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    finding_id   String CODEC(ZSTD),
    rule         LowCardinality(String),
    severity     LowCardinality(String),
    source       LowCardinality(String),
    tool_call_id String CODEC(ZSTD),
    call_id      String CODEC(ZSTD),
    event_ids    Array(String),
    seqs         Array(UInt64),
    explanation  String CODEC(ZSTD),
    remedy       String CODEC(ZSTD),
    detected_at  Nullable(DateTime64(9, 'UTC')),
    withdraws    String CODEC(ZSTD),
    enforced     Bool,
    form         UInt8,
    INDEX by_tool_call_id tool_call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_finding_id finding_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60;

-- The severity is that of the subject: NATS lets the admitter publish under one only,
-- whatever a body says. verify demands that the two are equal.
CREATE MATERIALIZED VIEW IF NOT EXISTS findings_mv TO findings AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'finding_id') AS finding_id,
    tupleElement(r, 'rule') AS rule,
    splitByChar('.', subject)[-2] AS severity,
    tupleElement(r, 'source') AS source,
    tupleElement(r, 'tool_call_id') AS tool_call_id,
    tupleElement(r, 'call_id') AS call_id,
    tupleElement(r, 'event_ids') AS event_ids,
    tupleElement(r, 'seqs') AS seqs,
    tupleElement(r, 'explanation') AS explanation,
    tupleElement(r, 'remedy') AS remedy,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'detected_at'), 9, 'UTC') AS detected_at,
    tupleElement(r, 'withdraws') AS withdraws,
    tupleElement(r, 'enforced') AS enforced,
    toUInt8(1) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, subject, JSONExtract(record, 'body', 'Tuple(
        finding_id String, rule String, source String, tool_call_id String, call_id String,
        event_ids Array(String), seqs Array(UInt64), explanation String, remedy String, detected_at String,
        withdraws String, enforced Bool
    )') AS r
    FROM evidence
    WHERE kind = 'finding'
);

CREATE TABLE IF NOT EXISTS approvals
(
    tenant          LowCardinality(String),
    session         String CODEC(ZSTD),
    shard           LowCardinality(String),
    seq             UInt64 CODEC(Delta, ZSTD),
    broker_time     DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    workflow_id     String CODEC(ZSTD),
    status          LowCardinality(String),
    action_digest   String CODEC(ZSTD),
    source          LowCardinality(String),
    tool_call_id    String CODEC(ZSTD),
    decision_id     String CODEC(ZSTD),
    approver        String CODEC(ZSTD),
    reason          String CODEC(ZSTD),
    requested_at    Nullable(DateTime64(9, 'UTC')),
    decided_at      Nullable(DateTime64(9, 'UTC')),
    expires_at      Nullable(DateTime64(9, 'UTC')),
    step            UInt32,
    act             LowCardinality(String),
    action_id       String CODEC(ZSTD),
    tool            LowCardinality(String),
    tool_call_ids   Array(String) CODEC(ZSTD),
    policy_name     LowCardinality(String),
    policy_revision UInt64,
    policy_digest   String CODEC(ZSTD),
    mandate_id      String CODEC(ZSTD),
    mandate_hash    String CODEC(ZSTD),
    reviewer_groups Array(LowCardinality(String)),
    quorum          UInt32,
    approvers       Array(String) CODEC(ZSTD),
    preview_digest  String CODEC(ZSTD),
    resume_policy   LowCardinality(String),
    changed_at      Nullable(DateTime64(9, 'UTC')),
    refused         LowCardinality(String),
    form            UInt8,
    INDEX by_workflow_id workflow_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_tool_call_id tool_call_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60;

CREATE MATERIALIZED VIEW IF NOT EXISTS approvals_mv TO approvals AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'workflow_id') AS workflow_id,
    tupleElement(r, 'status') AS status,
    tupleElement(r, 'action_digest') AS action_digest,
    tupleElement(r, 'source') AS source,
    tupleElement(r, 'tool_call_id') AS tool_call_id,
    tupleElement(r, 'decision_id') AS decision_id,
    tupleElement(r, 'approver') AS approver,
    tupleElement(r, 'reason') AS reason,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'requested_at'), 9, 'UTC') AS requested_at,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'decided_at'), 9, 'UTC') AS decided_at,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'expires_at'), 9, 'UTC') AS expires_at,
    tupleElement(r, 'step') AS step,
    tupleElement(r, 'act') AS act,
    tupleElement(r, 'action_id') AS action_id,
    tupleElement(r, 'tool') AS tool,
    tupleElement(r, 'tool_call_ids') AS tool_call_ids,
    tupleElement(tupleElement(r, 'policy'), 'name') AS policy_name,
    tupleElement(tupleElement(r, 'policy'), 'revision') AS policy_revision,
    tupleElement(tupleElement(r, 'policy'), 'digest') AS policy_digest,
    tupleElement(tupleElement(r, 'mandate'), 'id') AS mandate_id,
    tupleElement(tupleElement(r, 'mandate'), 'hash') AS mandate_hash,
    tupleElement(r, 'reviewer_groups') AS reviewer_groups,
    tupleElement(r, 'quorum') AS quorum,
    tupleElement(r, 'approvers') AS approvers,
    tupleElement(r, 'preview_digest') AS preview_digest,
    tupleElement(r, 'resume_policy') AS resume_policy,
    parseDateTime64BestEffortOrNull(tupleElement(r, 'changed_at'), 9, 'UTC') AS changed_at,
    tupleElement(r, 'refused') AS refused,
    toUInt8(1) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, JSONExtract(record, 'body', 'Tuple(
        workflow_id String, status String, action_digest String, source String, tool_call_id String,
        decision_id String, approver String, reason String, requested_at String, decided_at String, expires_at String,
        step UInt32, act String, action_id String, tool String, tool_call_ids Array(String),
        policy Tuple(name String, revision UInt64, digest String), mandate Tuple(id String, hash String),
        reviewer_groups Array(String), quorum UInt32, approvers Array(String), preview_digest String, resume_policy String,
        changed_at String, refused String
    )') AS r
    FROM evidence
    WHERE kind = 'approval'
);

-- Every change of what decides: one row for a control record that is neither a
-- tick nor a cursor. Tenant is the record's, empty where it concerns several: then
-- the items name theirs. No view fills it: a view costs 18 ms of processor time for
-- each insert, and changes come a few times a day. The writer inserts the rows behind
-- a batch that has some (changes.sql).
CREATE TABLE IF NOT EXISTS changes
(
    tenant         LowCardinality(String),
    shard          LowCardinality(String),
    seq            UInt64 CODEC(Delta, ZSTD),
    broker_time    DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    kind           LowCardinality(String),
    revision       UInt64,
    digest         String CODEC(ZSTD),
    author         String CODEC(ZSTD),
    message        String CODEC(ZSTD),
    writer         String CODEC(ZSTD),
    error          String CODEC(ZSTD),
    rollback_to    UInt64,
    `items.change` Array(LowCardinality(String)),
    `items.tenant` Array(String),
    `items.name`   Array(String) CODEC(ZSTD),
    `items.digest` Array(String) CODEC(ZSTD),
    form           UInt8
)
ENGINE = MergeTree
ORDER BY (kind, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000;

-- What is not in the records: redacted values, and bodies that were withheld or
-- could not be parsed (reason).
CREATE TABLE IF NOT EXISTS redactions
(
    tenant           LowCardinality(String),
    session          String CODEC(ZSTD),
    shard            LowCardinality(String),
    seq              UInt64 CODEC(Delta, ZSTD),
    broker_time      DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    kind             LowCardinality(String),
    reason           LowCardinality(String),
    policy           LowCardinality(String),
    `items.path`     Array(String) CODEC(ZSTD),
    `items.detector` Array(LowCardinality(String)),
    `items.action`   Array(LowCardinality(String)),
    form             UInt8,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60;

CREATE MATERIALIZED VIEW IF NOT EXISTS redactions_mv TO redactions AS
SELECT
    tenant, session, shard, seq, broker_time, kind,
    tupleElement(r, 'reason') AS reason,
    tupleElement(r, 'redaction_policy') AS policy,
    tupleElement(tupleElement(r, 'redactions'), 'path') AS `items.path`,
    tupleElement(tupleElement(r, 'redactions'), 'detector') AS `items.detector`,
    tupleElement(tupleElement(r, 'redactions'), 'action') AS `items.action`,
    toUInt8(1) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, kind, JSONExtract(record, 'Tuple(
        reason String, redaction_policy String, redactions Array(Tuple(path String, detector String, action String))
    )') AS r
    FROM evidence
    WHERE redacted OR kind = 'unparseable'
);
