-- How the user's confirmation that a call rests on was found. How views change is
-- said in 00003.

-- +goose NO TRANSACTION
-- +goose Up

ALTER TABLE calls ADD COLUMN IF NOT EXISTS binding LowCardinality(String);

DROP VIEW IF EXISTS calls_mv2;

CREATE MATERIALIZED VIEW IF NOT EXISTS calls_mv3 TO calls AS
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
    toUInt8(3) AS form
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

-- +goose Down
DROP VIEW IF EXISTS calls_mv3;
