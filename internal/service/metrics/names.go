package metrics

import "github.com/countersign-dev/countersign/events/subject"

// kind is the type of a family in the exposition format.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// familyDesc describes one family. This file has all of them: what is measured, under
// which name, and which labels it has. docs/reference/metrics.md is made of them.
type familyDesc struct {
	name   string
	kind   kind
	labels []string
	help   string
	alert  string // when an operator should look; may be empty
}

// Labels that every family of a service has.
const (
	labelService = "service" // admitter, correlator, auditor or gateway
	labelShard   = "shard"   // the configured stream
)

// Metrics of every service, beside the Prometheus library's for the process (process_*) and the
// Go runtime (go_*).
var (
	descHealthy = familyDesc{"countersign_healthy", gauge, nil, "1 if nothing is wrong with the service, as GET /healthz says.", "0 for 5 minutes"}
	descReady   = familyDesc{"countersign_ready", gauge, nil, "1 once the service answers, or stands by.", "0 for longer than a replay of your log takes"}
	descActive  = familyDesc{"countersign_active", gauge, []string{labelShard}, "Of correlator and auditor: 1 if the instance is active on the shard, 0 if it stands by because another one is. Absent until it knows.", "no correlator, or no auditor, of a shard has 1"}
	descStalls  = familyDesc{"countersign_reader_stalls_total", counter, nil, "Consumers that stood still for 3 s although the stream's leader held more, and were made anew.", "it grows: look at the disks of the NATS servers"}
)

// Metrics of the admitter.
var (
	descAdmissions   = familyDesc{"countersign_admissions_total", counter, []string{"protocol", "verdict"}, "Requests that were decided, recorded and answered.", "it stands still, or deny is most of it, against your habit"}
	descRefused      = familyDesc{"countersign_admissions_refused_total", counter, []string{"code"}, "Requests that were answered deny without a record of the decision, by reason.", "audit_unavailable or internal_error grow; overloaded, quota_exceeded or policy_deadline grow for minutes"}
	descUnanswerable = familyDesc{"countersign_admissions_unanswerable_total", counter, nil, "Requests without a reply subject that may be answered: they were dropped.", "it grows: a client publishes what it has to request, or asks in the services' account"}
	descAdmission    = familyDesc{"countersign_admission_seconds", histogram, nil, "From the arrival of a request until its answer was sent.", "99 of 100 take longer than your runtimes wait"}
	descDecide       = familyDesc{"countersign_admission_decide_seconds", histogram, nil, "The decision alone: decoding, schemas, all evaluators. No I/O.", "it grows after a push of policies"}
	descRecord       = familyDesc{"countersign_admission_record_seconds", histogram, nil, "Signing and the durable record of request and decision.", "99 of 100 take longer than 0.25 s: a slow disk"}
	descInflight     = familyDesc{"countersign_admissions_inflight", gauge, nil, "Requests that are worked on now.", "above 0.8 of countersign_admissions_inflight_max"}
	descTaking       = familyDesc{"countersign_admissions_open", gauge, []string{labelShard}, "1 while the admitter takes requests; 0 before that, and while it leaves them to others because JetStream cannot be reached.", "no admitter of a shard has 1"}
	descInflightMax  = familyDesc{"countersign_admissions_inflight_max", gauge, nil, "Requests that may be worked on at a time (--max-inflight); more are refused as overloaded.", ""}
	descRevision     = familyDesc{"countersign_policy_revision", gauge, nil, "Revision of the policies in force.", "admitters differ for more than seconds"}
	descUsable       = familyDesc{"countersign_policy_usable", gauge, nil, "0 if there are no policies or they do not compile: everything is denied.", "0"}
	descSnapshotAge  = familyDesc{"countersign_policy_snapshot_age_seconds", gauge, nil, "How long ago the admitter began to decide from these policies.", "you pushed, and it did not fall"}
	descObserved     = familyDesc{"countersign_tenants_observed", gauge, nil, "Tenants whose policies are recorded and not enforced (mode observe).", "above 0 for longer than you meant"}
)

// Metrics of the admitter as the ingest service.
var (
	descIngested      = familyDesc{"countersign_events_stored_total", counter, nil, "Events of publishers that were stored and acknowledged.", "it stands still while publishers send"}
	descIngesting     = familyDesc{"countersign_events_open", gauge, []string{labelShard}, "1 while the admitter takes publishers' events; 0 while another one does, or none can.", "no admitter of a shard has 1"}
	descIngestRefused = familyDesc{"countersign_events_refused_total", counter, []string{"reason"}, "Events of publishers that were not stored, by reason; of reason doubt, not for certain.", "unavailable, doubt or busy grow; header and quota tell of a publisher that misbehaves"}
)

// Metrics of the gateway.
var (
	descGatewayAnswers       = familyDesc{"countersign_gateway_responses_total", counter, []string{"endpoint", "status"}, "HTTP responses, by endpoint and status; of a stream, when it begins.", "500, 502, 503 or 504 grow; 401 tells of a token that is revoked or guessed"}
	descGatewayRefused       = familyDesc{"countersign_gateway_refused_total", counter, []string{"code"}, "Those of them that the gateway refused, or that failed, by the code in the body; those of a protocol alone count as other.", "rate_limited, too_many_streams or overloaded grow for minutes: a limit is too small, or a caller runs wild"}
	descGatewayAdmitted      = familyDesc{"countersign_gateway_admissions_total", counter, []string{"protocol", "outcome"}, "Requests to the admitter, by verdict; unrecorded if it refused without a record, failed if no answer came that makes sense.", "unrecorded or failed grow"}
	descGatewayStored        = familyDesc{"countersign_gateway_events_total", counter, []string{"protocol"}, "Events that came over HTTP and are on the log, AAEP replies included.", "it stands still while publishers send"}
	descGatewaySeconds       = familyDesc{"countersign_gateway_request_seconds", histogram, nil, "From the end of a runtime's request, its body read, until the answer was there; without streams.", "99 of 100 take longer than your runtimes wait"}
	descGatewayInflight      = familyDesc{"countersign_gateway_inflight", gauge, nil, "Requests of runtimes that are worked on now.", "above 0.8 of countersign_gateway_inflight_max"}
	descGatewayInflightMax   = familyDesc{"countersign_gateway_inflight_max", gauge, nil, "Requests that may be worked on at a time (--max-inflight); more are refused as overloaded.", ""}
	descGatewayStreams       = familyDesc{"countersign_gateway_streams", gauge, nil, "Streams that are open, and requests that wait for an approval.", "above 0.8 of countersign_gateway_streams_max"}
	descGatewaySubscriptions = familyDesc{"countersign_gateway_aaep_subscriptions", gauge, nil, "AAEP subscriptions, and the WebSockets that carry them.", "above 0.8 of countersign_gateway_streams_max"}
	descGatewayStreamsMax    = familyDesc{"countersign_gateway_streams_max", gauge, nil, "How many there may be of each of the two (--max-streams); more are refused as too_many_streams.", ""}
	descGatewayTokens        = familyDesc{"countersign_gateway_tokens_ending", gauge, nil, "Tokens of the tenant that hold, and end within 7 days. Absent while the admitter does not confirm the tokens.", "above 0: whoever has one is refused then (countersign doctor names them)"}
	descGatewayCertificate   = familyDesc{"countersign_gateway_certificate_seconds_left", gauge, nil, "Seconds until the gateway's own certificate ends; below 0 once it has. Absent without TLS.", "below 604800: callers refuse the gateway after its end"}
)

// Metrics of the correlator.
var (
	descMessages  = familyDesc{"countersign_correlator_messages_total", counter, nil, "Messages of the log that were read, those of a replay after the start included.", ""}
	descOutputs   = familyDesc{"countersign_correlator_outputs_total", counter, nil, "Calls and findings that were written to the log.", ""}
	descCalls     = familyDesc{"countersign_calls_total", counter, []string{"state"}, "Call records that were written, by state.", "abandoned or orphaned become a habit"}
	descFindings  = familyDesc{"countersign_findings_total", counter, []string{"rule", "severity"}, "Findings that the correlator, or the auditor of its own rules, has written. Those that take an earlier one back are not among them.", "critical: at once. high: the same day"}
	descRetracted = familyDesc{"countersign_findings_withdrawn_total", counter, nil, "Findings that were taken back because of what came later.", ""}
	descOpen      = familyDesc{"countersign_correlator_open_calls", gauge, nil, "Calls that are open.", "it only grows: no runtime reports completions"}
	descKnown     = familyDesc{"countersign_correlator_calls", gauge, nil, "Calls in memory, closed ones that are remembered for late events included.", ""}
	descSessions  = familyDesc{"countersign_correlator_sessions", gauge, nil, "Sessions in memory.", ""}
	descForgotten = familyDesc{"countersign_correlator_open_calls_forgotten_total", counter, nil, "Open calls that the correlator forgot for want of room.", "it grows: raise `--max-calls` or `--max-sessions`"}
	descUndecided = familyDesc{"countersign_correlator_oldest_undecided_seconds", gauge, nil, "Age of the oldest open call that has no verdict yet or waits for an approval; 0 if there is none.", "above what your reviewers promise"}
	descCorrLag   = familyDesc{"countersign_correlator_lag_messages", gauge, nil, "Messages of the log that the correlator has not read yet. Absent while NATS does not answer.", ""}
	descCorrAge   = familyDesc{"countersign_correlator_lag_seconds", gauge, nil, "Age of the oldest of them; 0 if there is none. Absent while NATS does not answer.", "above 60 for 5 minutes, unless it stands by"}
)

// Metrics of the auditor.
var (
	descRecords     = familyDesc{"countersign_evidence_records_total", counter, []string{"kind"}, "Evidence records that were stored.", "it stands still while the log grows"}
	descBytes       = familyDesc{"countersign_evidence_bytes_total", counter, nil, "Bytes of their text.", ""}
	descBatch       = familyDesc{"countersign_evidence_batch_records", histogram, nil, "Records of one insert.", ""}
	descInsert      = familyDesc{"countersign_evidence_insert_seconds", histogram, nil, "From the first attempt to store a batch until it was durable, with all retries.", "above some seconds: a slow or full ClickHouse"}
	descRedactions  = familyDesc{"countersign_evidence_redactions_total", counter, []string{"detector"}, "Values that were taken out of evidence, by detector.", "a credential detector grows: a runtime sends secrets"}
	descQuarantine  = familyDesc{"countersign_evidence_quarantined_total", counter, nil, "Messages whose bytes went to quarantine because they could not be parsed or redacted.", "it grows: a publisher sends what cannot be parsed"}
	descCheckpoints = familyDesc{"countersign_evidence_checkpoints_total", counter, nil, "Checkpoints that were signed, stored and published.", "it stands still while records come in"}
	descSigned      = familyDesc{"countersign_evidence_checkpoint_size", gauge, nil, "Records that the newest of them covers.", ""}
	descAuditLag    = familyDesc{"countersign_evidence_lag_messages", gauge, nil, "Messages of the log that are not in evidence yet. Absent while NATS does not answer.", ""}
	descAuditAge    = familyDesc{"countersign_evidence_oldest_unaudited_seconds", gauge, nil, "Age of the oldest of them; 0 if there is none. Absent while NATS does not answer.", "above 300 for 5 minutes"}
	descLost        = familyDesc{"evidence_lost_total", counter, nil, "Sequences of the log, from 1 to the last one that was stored, that no evidence record was stored for. Must be 0. Counted when an auditor begins, and in every batch.", "it is not 0"}
	descDue         = familyDesc{"countersign_retention_overdue_seconds", gauge, nil, "How long the session is due that waits longest for its erasure by a policy; 0 if none waits. Judged every hour.", "above 86400 for an hour"}
)

// Of `countersign up`.
var descServiceUp = familyDesc{"countersign_service_up", gauge, nil, "1 if the service answers.", "0 for 2 minutes"}

// familyGroups has every family, in the order of the documentation.
var familyGroups = []struct {
	of       string
	sharded  bool // every family of the group has the label of the shard, too
	families []familyDesc
}{
	{"every service", false, []familyDesc{descHealthy, descReady, descActive, descStalls}},
	{"the admitter", false, []familyDesc{descAdmissions, descRefused, descUnanswerable, descAdmission, descDecide, descRecord,
		descTaking, descInflight, descInflightMax, descRevision, descUsable, descSnapshotAge, descObserved, descIngested, descIngesting, descIngestRefused}},
	{"the gateway", false, []familyDesc{descGatewayAnswers, descGatewayRefused, descGatewayAdmitted, descGatewayStored, descGatewaySeconds,
		descGatewayInflight, descGatewayInflightMax, descGatewayStreams, descGatewaySubscriptions, descGatewayStreamsMax, descGatewayTokens, descGatewayCertificate}},
	{"the correlator", true, []familyDesc{descMessages, descOutputs, descCalls, descFindings, descRetracted, descOpen, descKnown, descSessions, descForgotten,
		descUndecided, descCorrLag, descCorrAge}},
	{"the auditor", true, []familyDesc{descRecords, descBytes, descBatch, descInsert, descRedactions, descQuarantine, descCheckpoints, descSigned,
		descAuditLag, descAuditAge, descLost, descDue}},
	{"countersign up", false, []familyDesc{descServiceUp}},
}

// labelValues are the values of the labels with lists that are fixed here. Those of rule,
// detector, endpoint and status are given to Correlator, Auditor and Gateway.
var labelValues = map[string][]string{
	"protocol": subject.Protocols, "verdict": verdicts, "code": refusalCodes, "reason": ingestReasons,
	"state": states, "severity": severities, "kind": recordKinds, "outcome": gatewayOutcomes,
}

// Label is a label of a family. Values is nil if they are not fixed in this package.
type Label struct {
	Name   string
	Values []string
}

// Family describes a family of metrics.
type Family struct {
	Of, Name, Kind, Help, Alert string // Of says which program has it; Alert when an operator should look
	Labels                      []Label
}

// Families are all families, in the order of the documentation.
func Families() (list []Family) {
	for _, g := range familyGroups {
		for _, d := range g.families {
			f := Family{Of: g.of, Name: d.name, Kind: string(d.kind), Help: d.help, Alert: d.alert, Labels: []Label{{Name: labelService}}}
			if g.sharded {
				f.Labels = append(f.Labels, Label{Name: labelShard})
			}
			for _, l := range d.labels {
				f.Labels = append(f.Labels, Label{l, labelValues[l]})
			}
			list = append(list, f)
		}
	}
	return list
}

// other replaces every label value that is not in its list: a value chosen by a publisher never
// becomes a label value.
const other = "other"
