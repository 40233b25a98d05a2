package questions

// questions holds the predefined questions. docs/reference/questions.md is made from it.
var questions = []Question{
	{
		Name: "agent", Asks: "What did an agent do between two times?", Needs: []string{"agent", "since", "until"},
		Says: "One row for each call, as of its last record in that time. `--agent` takes the agent's claimed name or the authenticated publisher's.",
		SQL: `SELECT broker_time, session, tool, tool_call_id, verdict, state, outcome, findings, decision_id, shard, seq
FROM (
    SELECT broker_time, session, tool, tool_call_id, verdict, state, outcome, findings, decision_id, call_id, shard, seq
    FROM calls
    WHERE tenant = {tenant:String} AND (agent = {agent:String} OR source = {agent:String})
        AND broker_time >= {since:DateTime64(9, 'UTC')} AND broker_time < {until:DateTime64(9, 'UTC')}
    ORDER BY shard, seq DESC LIMIT 1 BY shard, call_id
)
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
	{
		Name: "approved", Asks: "Who approved this?", Needs: []string{"id"},
		Says: "Every step of the workflow. `approver` is the authenticated user; `refused` says why an attempt changed nothing. `--id` takes a workflow, decision, tool call or event.",
		SQL: `SELECT broker_time, workflow_id, step, act, status, approver, approvers, quorum, reason, refused, tool, session, tool_call_id, decision_id, shard, seq
FROM approvals
WHERE tenant = {tenant:String} AND (
    workflow_id = {id:String} OR decision_id = {id:String} OR tool_call_id = {id:String} OR has(tool_call_ids, {id:String})
    OR workflow_id IN (
        SELECT approval_workflow_id FROM decisions
        WHERE tenant = {tenant:String} AND approval_workflow_id != '' AND (decision_id = {id:String} OR tool_call_id = {id:String} OR event_id = {id:String})
    )
)
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
	{
		Name: "no-verdict", Asks: "What ran without a verdict?", Needs: []string{"since", "until"},
		Says: "Calls that ended without a decision. An orphaned call was completed without an announcement.",
		SQL: `SELECT broker_time, session, source, agent, tool, tool_call_id, state, outcome, findings, shard, seq
FROM calls
WHERE tenant = {tenant:String} AND state IN ('completed', 'failed', 'orphaned') AND decision_id = ''
    AND broker_time >= {since:DateTime64(9, 'UTC')} AND broker_time < {until:DateTime64(9, 'UTC')}
ORDER BY shard, seq LIMIT 1 BY shard, call_id LIMIT {most:UInt32}`,
	},
	{
		Name: "despite-no", Asks: "What ran although the verdict was no, or not yes yet?", Needs: []string{"since", "until"},
		Says: "Findings with the log sequences that prove them (`seqs`), without those that a finding of severity `info` under the same rule, in the same shard, retracts (`withdraws`).",
		SQL: `SELECT broker_time, rule, severity, enforced, session, source, tool_call_id, explanation, seqs, finding_id, shard, seq
FROM findings
WHERE tenant = {tenant:String} AND rule IN ('executed_despite_deny', 'executed_while_ask_pending') AND withdraws = ''
    AND (shard, rule, finding_id) NOT IN (SELECT shard, rule, withdraws FROM findings WHERE tenant = {tenant:String} AND withdraws != '' AND severity = 'info')
    AND broker_time >= {since:DateTime64(9, 'UTC')} AND broker_time < {until:DateTime64(9, 'UTC')}
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
	{
		Name: "policy", Asks: "Under which policy text was this decided?", Needs: []string{"id"},
		Says:  "The document with the deciding policy, and its author. In mode observe an allow may be none of the policies': `would` of the decision says what they gave. The text is empty where the set was too large for one record.",
		Hides: "the set (its text, author, message and time), because a set can hold several tenants' policies",
		SQL: `WITH asked AS (
    SELECT shard, seq, broker_time, decision_id, verdict, policy_name, policy_revision, policy_digest
    FROM decisions
    WHERE tenant = {tenant:String} AND (decision_id = {id:String} OR tool_call_id = {id:String} OR event_id = {id:String})
), sets AS (
    SELECT shard, seq, broker_time AS since, revision, digest, author, message
    FROM changes
    WHERE kind = 'policy' AND error = '' AND (shard, revision, digest) IN (SELECT shard, policy_revision, policy_digest FROM asked)
), documents AS (
    SELECT shard, seq, arrayJoin(JSONExtract(record, 'body', 'documents', 'Array(Tuple(name String, text String))')) AS document
    FROM evidence
    WHERE (shard, seq) IN (SELECT shard, seq FROM sets)
)
SELECT asked.broker_time AS decided, asked.decision_id AS decision_id, asked.verdict AS verdict, asked.policy_name AS policy, asked.policy_revision AS revision,
    nullIf(sets.since, toDateTime64(0, 9, 'UTC')) AS in_force_since, sets.author AS author, sets.message AS message,
    tupleElement(documents.document, 'name') AS file, tupleElement(documents.document, 'text') AS text, asked.shard AS shard, asked.seq AS seq
FROM asked
LEFT JOIN sets ON sets.shard = asked.shard AND sets.revision = asked.policy_revision AND sets.digest = asked.policy_digest
LEFT JOIN documents ON documents.shard = sets.shard AND documents.seq = sets.seq
WHERE text = '' OR policy = '' OR position(text, policy) > 0
ORDER BY shard, seq, sets.seq LIMIT 1 BY shard, seq, file LIMIT {most:UInt32}`,
	},
	{
		Name: "changes", Asks: "What changed in what decides, and who changed it?", Needs: []string{"since", "until"},
		Says:  "Changes of policies, mandates, publishers, rules, keys, redaction and retention policies, legal holds, erasures and expiries, and attempts on unknown workflows. `author` is unverified; of rules, redaction policies, publishers, keys and expiries no record names one. `writer` is the service that took the change up. A refused change has an `error`, withheld where it may speak of other tenants: always that of policies; of policies and publishers, everything was denied meanwhile. Of a change that concerns several tenants, `items` has those of the asked one; a change of policies lists the policies of all tenants.",
		Hides: "changes of policies, publishers, mandates and keys, because their records can name several tenants or none",
		SQL: `SELECT broker_time, kind, revision, author, message,
    if(error = '' OR kind != 'policy' AND arrayAll(t -> t IN ('', {tenant:String}), items.tenant), error, 'withheld: it may speak of other tenants') AS error,
    arrayMap(item -> trim(BOTH ' ' FROM concat(item.1, ' ', item.2)),
        arrayFilter(item -> item.3 IN ('', {tenant:String}), arrayZip(items.change, items.name, items.tenant))) AS items, writer, shard, seq
FROM changes
WHERE (tenant = {tenant:String} OR (tenant = '' AND (arrayAll(t -> t = '', items.tenant) OR has(items.tenant, {tenant:String}))))
    AND broker_time >= {since:DateTime64(9, 'UTC')} AND broker_time < {until:DateTime64(9, 'UTC')}
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
	{
		Name: Missing, Asks: "Is anything missing, doubled or not yet signed?",
		Says: "One row for each incarnation of the log. All but `newest` and, for a moment, `unsigned` must be 0. This counts the rows that are there: what is gone from the end, `countersign doctor` sees, and `countersign verify` proves.",
		SQL: `SELECT log.shard AS shard, log.newest AS newest, log.newest - log.different AS missing, log.records - log.different AS doubled,
    toInt64(log.newest) - toInt64(signed.size) AS unsigned, chains.broken AS broken_sessions
FROM (SELECT shard, max(seq) AS newest, count() AS records, groupBitmap(seq) AS different FROM leaf_hashes GROUP BY shard) AS log
LEFT JOIN (SELECT shard, max(size) AS size FROM checkpoints GROUP BY shard) AS signed ON signed.shard = log.shard
LEFT JOIN (
    SELECT shard, countIf(records != last) AS broken
    FROM (
        SELECT shard, session, count() AS records, max(session_index) AS last
        FROM evidence_chain
        WHERE tenant = {tenant:String} AND session_index IS NOT NULL
        GROUP BY shard, session
    )
    GROUP BY shard
) AS chains ON chains.shard = log.shard
ORDER BY shard LIMIT {most:UInt32}`,
	},
	{
		Name: "redacted", Asks: "What was redacted or withheld, and why?", Needs: []string{"session", "since", "until"},
		Says: "One row for each removed value. `reason` says why a whole body was withheld; its bytes are in the quarantine.",
		SQL: `SELECT broker_time, session, kind, path, detector, action, policy, reason, shard, seq
FROM redactions
LEFT ARRAY JOIN items.path AS path, items.detector AS detector, items.action AS action
WHERE tenant = {tenant:String} AND ({session:String} = '' OR session = {session:String})
    AND broker_time >= {since:DateTime64(9, 'UTC')} AND broker_time < {until:DateTime64(9, 'UTC')}
ORDER BY shard, seq, path, detector, action LIMIT {most:UInt32}`,
	},
	{
		Name: "mandate", Asks: "Which mandate paid for this, and what else was decided under it?", Needs: []string{"id"},
		Says: "Everything that was decided under the mandate, and its outcome. `countersign mandate get` has the sums.",
		SQL: `WITH paid AS (
    SELECT mandate_id FROM decisions
    WHERE tenant = {tenant:String} AND mandate_id != '' AND (mandate_id = {id:String} OR decision_id = {id:String} OR tool_call_id = {id:String})
), under AS (
    SELECT broker_time, session, tool, tool_call_id, verdict, mandate_id, mandate_hash, decision_id, shard, seq
    FROM decisions
    WHERE tenant = {tenant:String} AND mandate_id IN (SELECT mandate_id FROM paid)
)
SELECT under.broker_time AS decided, under.mandate_id AS mandate_id, under.mandate_hash AS mandate_hash, under.session AS session, under.tool AS tool,
    under.tool_call_id AS tool_call_id, under.verdict AS verdict, ran.state AS state, ran.outcome AS outcome, under.decision_id AS decision_id,
    under.shard AS shard, under.seq AS seq
FROM under
LEFT JOIN (
    SELECT decision_id, argMax(state, seq) AS state, argMax(outcome, seq) AS outcome
    FROM calls
    WHERE tenant = {tenant:String} AND decision_id IN (SELECT decision_id FROM under)
    GROUP BY decision_id
) AS ran ON ran.decision_id = under.decision_id
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
	{
		Name: "undecided", Asks: "Which calls are still undecided?", Needs: []string{"since"},
		Says: "Open calls with the verdict none, `ask` or `defer`, and their workflow. A decision on a later call with the same id counts for both. Without `--since` it reads all calls. Calls that were open when their session was erased stay among them until the evidence expires.",
		SQL: `SELECT broker_time AS since, session, source, agent, tool, tool_call_id, if(fits, latest_verdict, verdict) AS verdict,
    if(fits, latest_decision, '') AS decision_id, if(fits, latest_workflow, '') AS workflow_id, waits.status AS approval, shard, seq
FROM (
    SELECT broker_time, session, source, agent, tool, tool_call_id, verdict, shard, seq, latest_verdict, latest_decision, latest_workflow,
        latest_decision != '' AND latest >= first AS fits
    FROM (
        SELECT broker_time, session, source, agent, tool, tool_call_id, verdict, timeline.seq[1] AS first, shard, seq,
            if(tool_call_id = '', tool, '') AS of_tool, arrayJoin(if(tool_call_id = '', arrayDistinct(arrayPushFront(timeline.event_id, '')), [''])) AS of_event
        FROM (
            SELECT broker_time, session, source, agent, tool, tool_call_id, verdict, timeline.seq, timeline.event_id, shard, seq
            FROM calls
            WHERE tenant = {tenant:String} AND state = 'open' AND broker_time >= {since:DateTime64(9, 'UTC')} AND sipHash128(shard, call_id) NOT IN (
                SELECT sipHash128(shard, call_id) FROM calls
                WHERE tenant = {tenant:String} AND state != 'open' AND broker_time >= {since:DateTime64(9, 'UTC')}
            )
            ORDER BY shard, seq DESC LIMIT 1 BY shard, call_id
        )
    ) AS keys
    LEFT JOIN (
        SELECT shard, session, source, tool_call_id, if(tool_call_id = '', tool, '') AS of_tool, if(tool_call_id = '', event_id, '') AS of_event, max(seq) AS latest,
            argMax(verdict, seq) AS latest_verdict, argMax(decision_id, seq) AS latest_decision, argMax(approval_workflow_id, seq) AS latest_workflow
        FROM decisions
        WHERE tenant = {tenant:String} AND broker_time >= {since:DateTime64(9, 'UTC')} - INTERVAL 1 HOUR
        GROUP BY shard, session, source, tool_call_id, of_tool, of_event
    ) AS decided USING (shard, session, source, tool_call_id, of_tool, of_event)
    ORDER BY shard, seq, latest DESC LIMIT 1 BY shard, seq
) AS open
LEFT JOIN (
    SELECT shard, workflow_id, argMax(status, seq) AS status
    FROM approvals
    WHERE tenant = {tenant:String}
    GROUP BY shard, workflow_id
) AS waits ON waits.shard = open.shard AND waits.workflow_id = if(open.fits, open.latest_workflow, '')
WHERE verdict IN ('', 'ask', 'defer')
ORDER BY shard, seq LIMIT {most:UInt32}`,
	},
}
