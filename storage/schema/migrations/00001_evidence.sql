-- The tables of the evidence and what is made from them. Every statement can be run
-- again: two processes may migrate at the same time.
--
-- A view that changes later gets a new name. MODIFY QUERY would do, but in 26.7 the
-- tokens of a view changed by it are others after the next restart of the server,
-- so that an insert tried again would be stored twice; and of two processes that
-- migrate at the same time the second one must find nothing to do.

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
CREATE VIEW IF NOT EXISTS leaf_hashes SQL SECURITY INVOKER AS
SELECT shard, seq, record_hash
FROM evidence;

-- What follows is derived from evidence by materialized views, in the same insert and
-- under the same de-duplication token. It can be rebuilt from it (DB.Repair), so
-- record_fields goes without fsync. Not so evidence_chain: the heads of the sessions'
-- chains are read from it while an auditor works, also from a server that lost power
-- meanwhile, and a head that is missing there would begin its chain anew.
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

-- One row for each record that auditors ask for, with the members of its text in typed
-- columns. Tenant and session are the evidence row's (they come from the subject, which
-- the broker enforced), fields and control are what the body says, redaction is what was
-- taken out of the record. topic is the word of the subject that says more than the kind:
-- of a finding its severity, of a control record what it is about.
--
-- All kinds have one table, although a record fills only its own kind's members: each
-- materialized view costs an insert 5 to 16 ms of processor time, whether it has rows or
-- not, and each table a part. The empty members of a kind cost nearly nothing, because
-- rows are sorted by kind; bodies of publishers fill none. Up to 128 MiB a part has one file
-- for all columns: with a file for each of the 220 an insert and a merge take twice the
-- time, and two buffers for each, so blocks are small. Auditors read the views below.
--
-- The view writes its number into the column form; DB.Repair makes rows of an earlier view
-- anew.
CREATE TABLE IF NOT EXISTS record_fields
(
    tenant      LowCardinality(String),
    session     String CODEC(ZSTD),
    shard       LowCardinality(String),
    seq         UInt64 CODEC(Delta, ZSTD),
    broker_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    kind        LowCardinality(String),
    topic       LowCardinality(String),
    redaction   Tuple(
        reason LowCardinality(String), redaction_policy LowCardinality(String),
        redactions Array(Tuple(path String, detector LowCardinality(String), action LowCardinality(String)))
    ) CODEC(ZSTD),
    fields      Tuple(
        decision_id String, event_id String, protocol LowCardinality(String), source LowCardinality(String), gateway LowCardinality(String),
        agent String, tool_call_id String, occurrence UInt32, tool LowCardinality(String), action LowCardinality(String),
        resource_kind LowCardinality(String), args_digest String, request_digest String, verdict LowCardinality(String), native_verdict LowCardinality(String),
        reasons Array(Tuple(evaluator LowCardinality(String), code LowCardinality(String), path String, policy String, action LowCardinality(String), would LowCardinality(String))),
        policy Tuple(name LowCardinality(String), revision UInt64, digest String), mandate Tuple(id String, hash String),
        approval Tuple(workflow_id String, status LowCardinality(String), action_id String, requested_at String, expires_at String, resume_policy LowCardinality(String)),
        received_at String, decided_at String, expires_at String, receipt_hash String, durability LowCardinality(String), trace String,
        canonical_tool LowCardinality(String), publishers Tuple(revision UInt64, digest String),
        counts Array(Tuple(key String, window_ms Int64, amount Int64, total Int64)), inputs String, mode LowCardinality(String), would LowCardinality(String),
        call_id String, state LowCardinality(String), outcome LowCardinality(String), decision_seq UInt64, execution_seq UInt64,
        admitted_digest String, executed_digest String, match LowCardinality(String), inferred Bool, weak_scope Bool, findings Array(LowCardinality(String)),
        timeline Array(Tuple(step LowCardinality(String), seq UInt64, at String, event_id String, protocol LowCardinality(String))),
        protocols Array(LowCardinality(String)), match_reason LowCardinality(String),
        differences Array(Tuple(pointer String, kind LowCardinality(String))), more_differences UInt32,
        attempt UInt32, retried_from String, retried_to String,
        parent Tuple(call_id String, source LowCardinality(String), session String, by LowCardinality(String)),
        durations Tuple(requested_to_decided_us Nullable(Int64), decided_to_started_us Nullable(Int64), started_to_completed_us Nullable(Int64)),
        claimed String, binding LowCardinality(String),
        finding_id String, rule LowCardinality(String), event_ids Array(String), seqs Array(UInt64), explanation String, remedy String,
        detected_at String, withdraws String, enforced Bool,
        workflow_id String, status LowCardinality(String), action_digest String, approver String, reason String, requested_at String,
        step UInt32, act LowCardinality(String), action_id String, tool_call_ids Array(String), reviewer_groups Array(LowCardinality(String)),
        quorum UInt32, approvers Array(String), preview_digest String, resume_policy LowCardinality(String), changed_at String, refused LowCardinality(String)
    ) CODEC(ZSTD),
    control     Tuple(
        tenant LowCardinality(String), revision UInt64, digest String, author String, message String, writer String, error String, rollback_to UInt64,
        policies Array(Tuple(name String, digest String, tenant String, policy String, error String)),
        documents Array(Tuple(tenant String, name String, digest String)),
        changes Array(Tuple(change String, tenant String, mandate_id String, hash String, author String)),
        rules Map(String, String), kid String, use String,
        user String, action String, workflow_id String, request_digest String, refused String,
        what String, id String, session String, by String, reason String, state String, erasure_id String, ordered_by String, policy String
    ) CODEC(ZSTD),
    form        UInt8,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1,
    INDEX by_tool_call_id fields.tool_call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_decision_id fields.decision_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_event_id fields.event_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_call_id fields.call_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_finding_id fields.finding_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_agent fields.agent TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_workflow_asked fields.approval.workflow_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_workflow_id fields.workflow_id TYPE bloom_filter(0.01) GRANULARITY 1,
    INDEX by_mandate fields.mandate.id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (kind, tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000, old_parts_lifetime = 60,
    min_bytes_for_wide_part = 134217728, max_compress_block_size = 65536, vertical_merge_algorithm_min_columns_to_activate = 1;

CREATE MATERIALIZED VIEW IF NOT EXISTS record_fields_mv TO record_fields AS
SELECT tenant, session, shard, seq, broker_time, kind,
    multiIf(kind = 'finding', splitByChar('.', subject)[-2], kind = 'control', splitByChar('.', subject)[-1], '') AS topic,
    JSONExtract(record, 'Tuple(
        reason LowCardinality(String), redaction_policy LowCardinality(String),
        redactions Array(Tuple(path String, detector LowCardinality(String), action LowCardinality(String)))
    )') AS redaction,
    JSONExtract(if(kind IN ('decision', 'call', 'finding', 'approval'), record, ''), 'body', 'Tuple(
        decision_id String, event_id String, protocol LowCardinality(String), source LowCardinality(String), gateway LowCardinality(String),
        agent String, tool_call_id String, occurrence UInt32, tool LowCardinality(String), action LowCardinality(String),
        resource_kind LowCardinality(String), args_digest String, request_digest String, verdict LowCardinality(String), native_verdict LowCardinality(String),
        reasons Array(Tuple(evaluator LowCardinality(String), code LowCardinality(String), path String, policy String, action LowCardinality(String), would LowCardinality(String))),
        policy Tuple(name LowCardinality(String), revision UInt64, digest String), mandate Tuple(id String, hash String),
        approval Tuple(workflow_id String, status LowCardinality(String), action_id String, requested_at String, expires_at String, resume_policy LowCardinality(String)),
        received_at String, decided_at String, expires_at String, receipt_hash String, durability LowCardinality(String), trace String,
        canonical_tool LowCardinality(String), publishers Tuple(revision UInt64, digest String),
        counts Array(Tuple(key String, window_ms Int64, amount Int64, total Int64)), inputs String, mode LowCardinality(String), would LowCardinality(String),
        call_id String, state LowCardinality(String), outcome LowCardinality(String), decision_seq UInt64, execution_seq UInt64,
        admitted_digest String, executed_digest String, match LowCardinality(String), inferred Bool, weak_scope Bool, findings Array(LowCardinality(String)),
        timeline Array(Tuple(step LowCardinality(String), seq UInt64, at String, event_id String, protocol LowCardinality(String))),
        protocols Array(LowCardinality(String)), match_reason LowCardinality(String),
        differences Array(Tuple(pointer String, kind LowCardinality(String))), more_differences UInt32,
        attempt UInt32, retried_from String, retried_to String,
        parent Tuple(call_id String, source LowCardinality(String), session String, by LowCardinality(String)),
        durations Tuple(requested_to_decided_us Nullable(Int64), decided_to_started_us Nullable(Int64), started_to_completed_us Nullable(Int64)),
        claimed String, binding LowCardinality(String),
        finding_id String, rule LowCardinality(String), event_ids Array(String), seqs Array(UInt64), explanation String, remedy String,
        detected_at String, withdraws String, enforced Bool,
        workflow_id String, status LowCardinality(String), action_digest String, approver String, reason String, requested_at String,
        step UInt32, act LowCardinality(String), action_id String, tool_call_ids Array(String), reviewer_groups Array(LowCardinality(String)),
        quorum UInt32, approvers Array(String), preview_digest String, resume_policy LowCardinality(String), changed_at String, refused LowCardinality(String)
    )') AS fields,
    JSONExtract(if(kind = 'control', record, ''), 'body', 'Tuple(
        tenant LowCardinality(String), revision UInt64, digest String, author String, message String, writer String, error String, rollback_to UInt64,
        policies Array(Tuple(name String, digest String, tenant String, policy String, error String)),
        documents Array(Tuple(tenant String, name String, digest String)),
        changes Array(Tuple(change String, tenant String, mandate_id String, hash String, author String)),
        rules Map(String, String), kid String, use String,
        user String, action String, workflow_id String, request_digest String, refused String,
        what String, id String, session String, by String, reason String, state String, erasure_id String, ordered_by String, policy String
    )') AS control,
    toUInt8(1) AS form
FROM evidence
WHERE kind IN ('decision', 'call', 'finding', 'approval', 'unparseable') OR redacted
    OR (kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick')));

-- What auditors read: a view for each kind of record. A view has the rights of who reads
-- it, so that row policies on record_fields hold. A time that is none is NULL.
CREATE VIEW IF NOT EXISTS decisions SQL SECURITY INVOKER AS
SELECT
    tenant, session, shard, seq, broker_time,
    fields.decision_id AS decision_id,
    fields.event_id AS event_id,
    fields.protocol AS protocol,
    fields.source AS source,
    fields.gateway AS gateway,
    fields.agent AS agent,
    fields.tool_call_id AS tool_call_id,
    fields.occurrence AS occurrence,
    fields.tool AS tool,
    fields.action AS action,
    fields.resource_kind AS resource_kind,
    fields.args_digest AS args_digest,
    fields.request_digest AS request_digest,
    fields.verdict AS verdict,
    fields.native_verdict AS native_verdict,
    fields.reasons.evaluator AS `reasons.evaluator`,
    fields.reasons.code AS `reasons.code`,
    fields.reasons.path AS `reasons.path`,
    fields.reasons.policy AS `reasons.policy`,
    fields.policy.name AS policy_name,
    fields.policy.revision AS policy_revision,
    fields.policy.digest AS policy_digest,
    fields.mandate.id AS mandate_id,
    fields.mandate.hash AS mandate_hash,
    fields.approval.workflow_id AS approval_workflow_id,
    fields.approval.status AS approval_status,
    fields.approval.action_id AS approval_action_id,
    parseDateTime64BestEffortOrNull(fields.approval.requested_at, 9, 'UTC') AS approval_requested_at,
    parseDateTime64BestEffortOrNull(fields.approval.expires_at, 9, 'UTC') AS approval_expires_at,
    fields.approval.resume_policy AS approval_resume_policy,
    parseDateTime64BestEffortOrNull(fields.received_at, 9, 'UTC') AS received_at,
    parseDateTime64BestEffortOrNull(fields.decided_at, 9, 'UTC') AS decided_at,
    parseDateTime64BestEffortOrNull(fields.expires_at, 9, 'UTC') AS expires_at,
    fields.receipt_hash AS receipt_hash,
    fields.durability AS durability,
    fields.trace AS trace,
    fields.reasons.action AS `reasons.action`,
    fields.reasons.would AS `reasons.would`,
    fields.canonical_tool AS canonical_tool,
    fields.publishers.revision AS publishers_revision,
    fields.publishers.digest AS publishers_digest,
    fields.counts.key AS `counts.key`,
    fields.counts.window_ms AS `counts.window_ms`,
    fields.counts.amount AS `counts.amount`,
    fields.counts.total AS `counts.total`,
    fields.inputs AS inputs,
    fields.mode AS mode,
    fields.would AS would
FROM record_fields
WHERE kind = 'decision';

CREATE VIEW IF NOT EXISTS calls SQL SECURITY INVOKER AS
SELECT
    tenant, session, shard, seq, broker_time,
    fields.call_id AS call_id,
    fields.source AS source,
    fields.protocol AS protocol,
    fields.agent AS agent,
    fields.tool_call_id AS tool_call_id,
    fields.occurrence AS occurrence,
    fields.tool AS tool,
    fields.state AS state,
    fields.outcome AS outcome,
    fields.verdict AS verdict,
    fields.decision_id AS decision_id,
    fields.decision_seq AS decision_seq,
    fields.execution_seq AS execution_seq,
    fields.admitted_digest AS admitted_digest,
    fields.executed_digest AS executed_digest,
    fields.match AS match,
    fields.inferred AS inferred,
    fields.weak_scope AS weak_scope,
    fields.findings AS findings,
    fields.timeline.step AS `timeline.step`,
    fields.timeline.seq AS `timeline.seq`,
    arrayMap(t -> parseDateTime64BestEffortOrNull(t, 9, 'UTC'), fields.timeline.at) AS `timeline.at`,
    fields.timeline.event_id AS `timeline.event_id`,
    fields.timeline.protocol AS `timeline.protocol`,
    fields.protocols AS protocols,
    fields.match_reason AS match_reason,
    fields.differences.pointer AS `differences.pointer`,
    fields.differences.kind AS `differences.kind`,
    fields.more_differences AS more_differences,
    fields.attempt AS attempt,
    fields.retried_from AS retried_from,
    fields.retried_to AS retried_to,
    fields.trace AS trace,
    fields.parent.call_id AS parent_call_id,
    fields.parent.source AS parent_source,
    fields.parent.session AS parent_session,
    fields.parent.by AS parent_by,
    fields.durations.requested_to_decided_us AS requested_to_decided_us,
    fields.durations.decided_to_started_us AS decided_to_started_us,
    fields.durations.started_to_completed_us AS started_to_completed_us,
    fields.claimed AS claimed,
    fields.binding AS binding
FROM record_fields
WHERE kind = 'call';

-- The severity is that of the subject: NATS lets the admitter publish under one only,
-- whatever a body says. verify demands that the two are equal.
CREATE VIEW IF NOT EXISTS findings SQL SECURITY INVOKER AS
SELECT
    tenant, session, shard, seq, broker_time,
    fields.finding_id AS finding_id,
    fields.rule AS rule,
    topic AS severity,
    fields.source AS source,
    fields.tool_call_id AS tool_call_id,
    fields.call_id AS call_id,
    fields.event_ids AS event_ids,
    fields.seqs AS seqs,
    fields.explanation AS explanation,
    fields.remedy AS remedy,
    parseDateTime64BestEffortOrNull(fields.detected_at, 9, 'UTC') AS detected_at,
    fields.withdraws AS withdraws,
    fields.enforced AS enforced
FROM record_fields
WHERE kind = 'finding';

CREATE VIEW IF NOT EXISTS approvals SQL SECURITY INVOKER AS
SELECT
    tenant, session, shard, seq, broker_time,
    fields.workflow_id AS workflow_id,
    fields.status AS status,
    fields.action_digest AS action_digest,
    fields.source AS source,
    fields.tool_call_id AS tool_call_id,
    fields.decision_id AS decision_id,
    fields.approver AS approver,
    fields.reason AS reason,
    parseDateTime64BestEffortOrNull(fields.requested_at, 9, 'UTC') AS requested_at,
    parseDateTime64BestEffortOrNull(fields.decided_at, 9, 'UTC') AS decided_at,
    parseDateTime64BestEffortOrNull(fields.expires_at, 9, 'UTC') AS expires_at,
    fields.step AS step,
    fields.act AS act,
    fields.action_id AS action_id,
    fields.tool AS tool,
    fields.tool_call_ids AS tool_call_ids,
    fields.policy.name AS policy_name,
    fields.policy.revision AS policy_revision,
    fields.policy.digest AS policy_digest,
    fields.mandate.id AS mandate_id,
    fields.mandate.hash AS mandate_hash,
    fields.reviewer_groups AS reviewer_groups,
    fields.quorum AS quorum,
    fields.approvers AS approvers,
    fields.preview_digest AS preview_digest,
    fields.resume_policy AS resume_policy,
    parseDateTime64BestEffortOrNull(fields.changed_at, 9, 'UTC') AS changed_at,
    fields.refused AS refused
FROM record_fields
WHERE kind = 'approval';

-- What is not in the records: redacted values, and bodies that were withheld or
-- could not be parsed (reason).
CREATE VIEW IF NOT EXISTS redactions SQL SECURITY INVOKER AS
SELECT
    tenant, session, shard, seq, broker_time, kind,
    redaction.reason AS reason,
    redaction.redaction_policy AS policy,
    redaction.redactions.path AS `items.path`,
    redaction.redactions.detector AS `items.detector`,
    redaction.redactions.action AS `items.action`
FROM record_fields
WHERE notEmpty(redaction.redactions) OR kind = 'unparseable';

-- Every change of what decides: one row for a control record that is neither a
-- tick nor a cursor. Tenant is the record's, empty where it concerns several: then
-- the items name theirs.
CREATE VIEW IF NOT EXISTS changes SQL SECURITY INVOKER AS
SELECT
    control.tenant AS tenant, shard, seq, broker_time, topic AS kind,
    control.revision AS revision,
    control.digest AS digest,
    multiIf(topic = 'resolve', control.user, topic = 'mandate', arrayStringConcat(arrayDistinct(tupleElement(control.changes, 'author')), ', '),
        topic = 'retention', control.by, topic = 'erasure', control.ordered_by, control.author) AS author,
    if(topic IN ('retention', 'erasure'), control.reason, control.message) AS message,
    control.writer AS writer,
    if(topic = 'resolve', control.refused, control.error) AS error,
    control.rollback_to AS rollback_to,
    tupleElement(items, 1) AS `items.change`,
    tupleElement(items, 2) AS `items.tenant`,
    tupleElement(items, 3) AS `items.name`,
    tupleElement(items, 4) AS `items.digest`
FROM
(
    SELECT shard, seq, broker_time, topic, control, CAST(multiIf(
            topic = 'policy', arrayMap(p -> ('', '', tupleElement(p, 'name'), tupleElement(p, 'digest')), control.policies),
            topic = 'redaction', arrayMap(p -> (tupleElement(p, 'error'), tupleElement(p, 'tenant'), tupleElement(p, 'policy'), ''), control.policies),
            topic = 'publisher', arrayMap(d -> ('', tupleElement(d, 'tenant'), tupleElement(d, 'name'), tupleElement(d, 'digest')), control.documents),
            topic = 'mandate', arrayMap(c -> (tupleElement(c, 'change'), tupleElement(c, 'tenant'), tupleElement(c, 'mandate_id'), tupleElement(c, 'hash')), control.changes),
            topic = 'rules', arrayMap((rule, mode) -> (mode, control.tenant, rule, ''), mapKeys(control.rules), mapValues(control.rules)),
            topic = 'resolve', [(control.action, control.tenant, control.workflow_id, control.request_digest)],
            topic = 'retention', [(control.what, control.tenant, trim(concat(control.id, ' ', control.session)), '')],
            topic = 'erasure', [(control.state, control.tenant, control.erasure_id, '')],
            topic = 'expiry', [(control.state, control.tenant, control.policy, '')],
            [(control.use, '', control.kid, '')]
        ), 'Array(Tuple(LowCardinality(String), String, String, String))') AS items
    FROM record_fields
    WHERE kind = 'control'
);
