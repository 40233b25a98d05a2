-- What records have learnt to say since, and what else auditors ask for. A view
-- writes its number into the column form; DB.Repair makes rows of an earlier view
-- anew, so tables that are there already are brought up to date by the next start
-- of the auditor, and every statement here can be run again.
--
-- A view that changes gets a new name. MODIFY QUERY would do, but in 26.7 the
-- tokens of a view changed by it are others after the next restart of the server,
-- so that an insert tried again would be stored twice; and of two processes that
-- migrate at the same time the second one must find nothing to do.

-- +goose NO TRANSACTION
-- +goose Up

ALTER TABLE decisions
    ADD COLUMN IF NOT EXISTS `reasons.action` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS `reasons.would` Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS canonical_tool LowCardinality(String),
    ADD COLUMN IF NOT EXISTS publishers_revision UInt64,
    ADD COLUMN IF NOT EXISTS publishers_digest String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS `counts.key` Array(String),
    ADD COLUMN IF NOT EXISTS `counts.window_ms` Array(Int64),
    ADD COLUMN IF NOT EXISTS `counts.amount` Array(Int64),
    ADD COLUMN IF NOT EXISTS `counts.total` Array(Int64),
    ADD COLUMN IF NOT EXISTS inputs String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS form UInt8,
    ADD INDEX IF NOT EXISTS by_time broker_time TYPE minmax GRANULARITY 1,
    ADD INDEX IF NOT EXISTS by_agent agent TYPE bloom_filter(0.01) GRANULARITY 1,
    ADD INDEX IF NOT EXISTS by_workflow approval_workflow_id TYPE bloom_filter(0.01) GRANULARITY 1,
    ADD INDEX IF NOT EXISTS by_mandate mandate_id TYPE bloom_filter(0.01) GRANULARITY 1;

DROP VIEW IF EXISTS decisions_mv;

CREATE MATERIALIZED VIEW IF NOT EXISTS decisions_mv2 TO decisions AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'decision_id') AS decision_id,
    tupleElement(r, 'event_id') AS event_id,
    tupleElement(r, 'protocol') AS protocol,
    tupleElement(r, 'source') AS source,
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
    toUInt8(2) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, JSONExtract(record, 'body', 'Tuple(
        decision_id String, event_id String, protocol String, source String, agent String, tool_call_id String,
        occurrence UInt32, tool String, action String, resource_kind String, args_digest String,
        request_digest String, verdict String, native_verdict String,
        reasons Array(Tuple(evaluator String, code String, path String, policy String, action String, would String)),
        policy Tuple(name String, revision UInt64, digest String), mandate Tuple(id String, hash String),
        approval Tuple(workflow_id String, status String, action_id String, requested_at String, expires_at String, resume_policy String),
        received_at String, decided_at String, expires_at String, receipt_hash String, durability String, trace String,
        canonical_tool String, publishers Tuple(revision UInt64, digest String),
        counts Array(Tuple(key String, window_ms Int64, amount Int64, total Int64)), inputs String
    )') AS r
    FROM evidence
    WHERE kind = 'decision'
);

-- The hashes of records are in evidence; a second copy of them was a tenth of
-- everything on disk.
DROP VIEW IF EXISTS evidence_chain_mv;

CREATE MATERIALIZED VIEW IF NOT EXISTS evidence_chain_mv2 TO evidence_chain AS
SELECT tenant, session, shard, seq, session_index
FROM evidence
WHERE session != '' OR session_index IS NOT NULL;

ALTER TABLE evidence_chain DROP COLUMN IF EXISTS record_hash;

-- What proofs need of records that their reader may not see: see DB.TreeNodes and
-- the views of auditors.
CREATE VIEW IF NOT EXISTS leaf_hashes AS SELECT shard, seq, record_hash FROM evidence;

ALTER TABLE calls
    ADD INDEX IF NOT EXISTS by_time broker_time TYPE minmax GRANULARITY 1,
    ADD INDEX IF NOT EXISTS by_agent agent TYPE bloom_filter(0.01) GRANULARITY 1;

ALTER TABLE findings
    ADD COLUMN IF NOT EXISTS enforced Bool,
    ADD COLUMN IF NOT EXISTS form UInt8,
    ADD INDEX IF NOT EXISTS by_time broker_time TYPE minmax GRANULARITY 1;

DROP VIEW IF EXISTS findings_mv;

CREATE MATERIALIZED VIEW IF NOT EXISTS findings_mv2 TO findings AS
SELECT
    tenant, session, shard, seq, broker_time,
    tupleElement(r, 'finding_id') AS finding_id,
    tupleElement(r, 'rule') AS rule,
    tupleElement(r, 'severity') AS severity,
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
    toUInt8(2) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, JSONExtract(record, 'body', 'Tuple(
        finding_id String, rule String, severity String, source String, tool_call_id String, call_id String,
        event_ids Array(String), seqs Array(UInt64), explanation String, remedy String, detected_at String,
        withdraws String, enforced Bool
    )') AS r
    FROM evidence
    WHERE kind = 'finding'
);

ALTER TABLE approvals
    ADD COLUMN IF NOT EXISTS step UInt32,
    ADD COLUMN IF NOT EXISTS act LowCardinality(String),
    ADD COLUMN IF NOT EXISTS action_id String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS tool LowCardinality(String),
    ADD COLUMN IF NOT EXISTS tool_call_ids Array(String) CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS policy_name LowCardinality(String),
    ADD COLUMN IF NOT EXISTS policy_revision UInt64,
    ADD COLUMN IF NOT EXISTS policy_digest String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS mandate_id String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS mandate_hash String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS reviewer_groups Array(LowCardinality(String)),
    ADD COLUMN IF NOT EXISTS quorum UInt32,
    ADD COLUMN IF NOT EXISTS approvers Array(String) CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS preview_digest String CODEC(ZSTD),
    ADD COLUMN IF NOT EXISTS resume_policy LowCardinality(String),
    ADD COLUMN IF NOT EXISTS changed_at Nullable(DateTime64(9, 'UTC')),
    ADD COLUMN IF NOT EXISTS refused LowCardinality(String),
    ADD COLUMN IF NOT EXISTS form UInt8;

DROP VIEW IF EXISTS approvals_mv;

CREATE MATERIALIZED VIEW IF NOT EXISTS approvals_mv2 TO approvals AS
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
    toUInt8(2) AS form
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
-- the items name theirs.
CREATE TABLE IF NOT EXISTS changes
(
    tenant      LowCardinality(String),
    shard       LowCardinality(String),
    seq         UInt64 CODEC(Delta, ZSTD),
    broker_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    kind        LowCardinality(String),
    revision    UInt64,
    digest      String CODEC(ZSTD),
    author      String CODEC(ZSTD),
    message     String CODEC(ZSTD),
    writer      String CODEC(ZSTD),
    error       String CODEC(ZSTD),
    rollback_to UInt64,
    `items.change` Array(LowCardinality(String)),
    `items.tenant` Array(String),
    `items.name`   Array(String) CODEC(ZSTD),
    `items.digest` Array(String) CODEC(ZSTD),
    form        UInt8
)
ENGINE = MergeTree
ORDER BY (kind, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS changes_mv TO changes AS
SELECT
    tupleElement(r, 'tenant') AS tenant, shard, seq, broker_time, what AS kind,
    tupleElement(r, 'revision') AS revision,
    tupleElement(r, 'digest') AS digest,
    multiIf(what = 'resolve', tupleElement(r, 'user'), what = 'mandate', arrayStringConcat(arrayDistinct(tupleElement(tupleElement(r, 'changes'), 'author')), ', '), tupleElement(r, 'author')) AS author,
    tupleElement(r, 'message') AS message,
    tupleElement(r, 'writer') AS writer,
    if(what = 'resolve', tupleElement(r, 'refused'), tupleElement(r, 'error')) AS error,
    tupleElement(r, 'rollback_to') AS rollback_to,
    tupleElement(items, 1) AS `items.change`,
    tupleElement(items, 2) AS `items.tenant`,
    tupleElement(items, 3) AS `items.name`,
    tupleElement(items, 4) AS `items.digest`,
    toUInt8(2) AS form
FROM
(
    SELECT shard, seq, broker_time, what, r, CAST(multiIf(
            what = 'policy', arrayMap(p -> ('', '', tupleElement(p, 'name'), tupleElement(p, 'digest')), tupleElement(r, 'policies')),
            what = 'redaction', arrayMap(p -> (tupleElement(p, 'error'), tupleElement(p, 'tenant'), tupleElement(p, 'policy'), ''), tupleElement(r, 'policies')),
            what = 'publisher', arrayMap(d -> ('', tupleElement(d, 'tenant'), tupleElement(d, 'name'), tupleElement(d, 'digest')), tupleElement(r, 'documents')),
            what = 'mandate', arrayMap(c -> (tupleElement(c, 'change'), tupleElement(c, 'tenant'), tupleElement(c, 'mandate_id'), tupleElement(c, 'hash')), tupleElement(r, 'changes')),
            what = 'rules', arrayMap((rule, mode) -> (mode, tupleElement(r, 'tenant'), rule, ''), mapKeys(tupleElement(r, 'rules')), mapValues(tupleElement(r, 'rules'))),
            what = 'resolve', [(tupleElement(r, 'action'), tupleElement(r, 'tenant'), tupleElement(r, 'workflow_id'), tupleElement(r, 'request_digest'))],
            [(tupleElement(r, 'use'), '', tupleElement(r, 'kid'), '')]
        ), 'Array(Tuple(String, String, String, String))') AS items
    FROM
    (
        SELECT shard, seq, broker_time, arrayElement(splitByChar('.', subject), -1) AS what, JSONExtract(record, 'body', 'Tuple(
            tenant String, revision UInt64, digest String, author String, message String, writer String, error String, rollback_to UInt64,
            policies Array(Tuple(name String, digest String, tenant String, policy String, error String)),
            documents Array(Tuple(tenant String, name String, digest String)),
            changes Array(Tuple(change String, tenant String, mandate_id String, hash String, author String)),
            rules Map(String, String), kid String, use String,
            user String, action String, workflow_id String, request_digest String, refused String
        )') AS r
        FROM evidence
        WHERE kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))
    )
);

-- Whether a record says that something was taken out; in its own column, so that
-- nobody has to read the records to know.
ALTER TABLE evidence ADD COLUMN IF NOT EXISTS redacted Bool MATERIALIZED position(record, '"redactions":[{') > 0;

-- What is not in the records: redacted values, and bodies that were withheld or
-- could not be parsed (reason).
CREATE TABLE IF NOT EXISTS redactions
(
    tenant      LowCardinality(String),
    session     String CODEC(ZSTD),
    shard       LowCardinality(String),
    seq         UInt64 CODEC(Delta, ZSTD),
    broker_time DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    kind        LowCardinality(String),
    reason      LowCardinality(String),
    policy      LowCardinality(String),
    `items.path`       Array(String) CODEC(ZSTD),
    `items.detector`   Array(LowCardinality(String)),
    `items.action`     Array(LowCardinality(String)),
    form        UInt8,
    INDEX by_time broker_time TYPE minmax GRANULARITY 1
)
ENGINE = MergeTree
ORDER BY (tenant, session, shard, seq)
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS redactions_mv TO redactions AS
SELECT
    tenant, session, shard, seq, broker_time, kind,
    tupleElement(r, 'reason') AS reason,
    tupleElement(r, 'redaction_policy') AS policy,
    tupleElement(tupleElement(r, 'redactions'), 'path') AS `items.path`,
    tupleElement(tupleElement(r, 'redactions'), 'detector') AS `items.detector`,
    tupleElement(tupleElement(r, 'redactions'), 'action') AS `items.action`,
    toUInt8(2) AS form
FROM
(
    SELECT tenant, session, shard, seq, broker_time, kind, JSONExtract(record, 'Tuple(
        reason String, redaction_policy String, redactions Array(Tuple(path String, detector String, action String))
    )') AS r
    FROM evidence
    WHERE redacted OR kind = 'unparseable'
);

-- +goose Down
DROP VIEW IF EXISTS leaf_hashes;
DROP VIEW IF EXISTS redactions_mv;
DROP TABLE IF EXISTS redactions;
DROP VIEW IF EXISTS changes_mv;
DROP TABLE IF EXISTS changes;
