SELECT
    tupleElement(r, 'tenant') AS tenant, shard, seq, broker_time, what AS kind,
    tupleElement(r, 'revision') AS revision,
    tupleElement(r, 'digest') AS digest,
    multiIf(what = 'resolve', tupleElement(r, 'user'), what = 'mandate', arrayStringConcat(arrayDistinct(tupleElement(tupleElement(r, 'changes'), 'author')), ', '),
        what = 'retention', tupleElement(r, 'by'), what = 'erasure', tupleElement(r, 'ordered_by'), tupleElement(r, 'author')) AS author,
    if(what IN ('retention', 'erasure'), tupleElement(r, 'reason'), tupleElement(r, 'message')) AS message,
    tupleElement(r, 'writer') AS writer,
    if(what = 'resolve', tupleElement(r, 'refused'), tupleElement(r, 'error')) AS error,
    tupleElement(r, 'rollback_to') AS rollback_to,
    tupleElement(items, 1) AS `items.change`,
    tupleElement(items, 2) AS `items.tenant`,
    tupleElement(items, 3) AS `items.name`,
    tupleElement(items, 4) AS `items.digest`,
    toUInt8(1) AS form
FROM
(
    SELECT shard, seq, broker_time, what, r, CAST(multiIf(
            what = 'policy', arrayMap(p -> ('', '', tupleElement(p, 'name'), tupleElement(p, 'digest')), tupleElement(r, 'policies')),
            what = 'redaction', arrayMap(p -> (tupleElement(p, 'error'), tupleElement(p, 'tenant'), tupleElement(p, 'policy'), ''), tupleElement(r, 'policies')),
            what = 'publisher', arrayMap(d -> ('', tupleElement(d, 'tenant'), tupleElement(d, 'name'), tupleElement(d, 'digest')), tupleElement(r, 'documents')),
            what = 'mandate', arrayMap(c -> (tupleElement(c, 'change'), tupleElement(c, 'tenant'), tupleElement(c, 'mandate_id'), tupleElement(c, 'hash')), tupleElement(r, 'changes')),
            what = 'rules', arrayMap((rule, mode) -> (mode, tupleElement(r, 'tenant'), rule, ''), mapKeys(tupleElement(r, 'rules')), mapValues(tupleElement(r, 'rules'))),
            what = 'resolve', [(tupleElement(r, 'action'), tupleElement(r, 'tenant'), tupleElement(r, 'workflow_id'), tupleElement(r, 'request_digest'))],
            what = 'retention', [(tupleElement(r, 'what'), tupleElement(r, 'tenant'), trim(concat(tupleElement(r, 'id'), ' ', tupleElement(r, 'session'))), '')],
            what = 'erasure', [(tupleElement(r, 'state'), tupleElement(r, 'tenant'), tupleElement(r, 'erasure_id'), '')],
            what = 'expiry', [(tupleElement(r, 'state'), tupleElement(r, 'tenant'), tupleElement(r, 'policy'), '')],
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
            user String, action String, workflow_id String, request_digest String, refused String,
            what String, id String, session String, by String, reason String, state String, erasure_id String, ordered_by String, policy String
        )') AS r
        FROM evidence
        WHERE kind = 'control' AND NOT (endsWith(subject, '.cursor') OR endsWith(subject, '.tick'))
    )
)
