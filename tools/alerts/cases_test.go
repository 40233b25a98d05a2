package alerts

import "time"

const (
	minute = time.Minute
	hour   = time.Hour
)

// cases play samples of one or more series to one alert until a time. It fires from first to last (0: not looked at;
// first never: it does not fire), with the labels that are given.
var cases = []struct {
	alert, name string
	series      []string
	until       time.Duration
	first, last time.Duration
	labels      []string
}{
	{"CountersignEvidenceLost", "a sequence without evidence", []string{
		`evidence_lost_total{shard="GOV",service="auditor"} 0x7 1x20`}, 5 * minute, 2 * minute, 5 * minute,
		[]string{`{__name__="evidence_lost_total", service="auditor", shard="GOV"}`}},
	{"CountersignEvidenceLost", "none", []string{
		`evidence_lost_total{shard="GOV",service="auditor"} 0x20`}, 5 * minute, never, 0, nil},

	{"CountersignCriticalFinding", "a counter that grows", []string{
		`countersign_findings_total{severity="critical",rule="r",shard="GOV",instance="i",service="correlator"} 3x39 4x80`,
		`process_start_time_seconds{instance="i",service="correlator"} -86400x120`}, 30 * minute, 10 * minute, 15*minute - 2*step,
		[]string{`{rule="r", shard="GOV"}`}},
	{"CountersignCriticalFinding", "a series that begins with 1 in a young process", []string{
		`countersign_findings_total{severity="critical",rule="log_recreated",shard="GOV",instance="i",service="auditor"} _x19 1x100`,
		`process_start_time_seconds{instance="i",service="auditor"} 240x120`}, 30 * minute, 5*minute - step, 10*minute - 2*step,
		[]string{`{rule="log_recreated", shard="GOV"}`}},
	{"CountersignCriticalFinding", "a missed scrape of an old process", []string{
		`countersign_findings_total{severity="critical",rule="r",shard="GOV",instance="i",service="correlator"} 3x40 _x25 3x50`,
		`process_start_time_seconds{instance="i",service="correlator"} -86400x120`}, 30 * minute, never, 0, nil},
	{"CountersignCriticalFinding", "a finding that is high", []string{
		`countersign_findings_total{severity="high",rule="r",shard="GOV",instance="i",service="correlator"} 3x39 4x80`,
		`process_start_time_seconds{instance="i",service="correlator"} -86400x120`}, 30 * minute, never, 0, nil},

	{"CountersignDeniesForWantOfARecord", "denials, minutes apart", []string{
		`countersign_admissions_refused_total{code="audit_unavailable",service="admitter"} 0x19 1x19 2x80`}, 30 * minute, 10 * minute, 26*minute + 2*step,
		[]string{`{service="admitter"}`}},
	{"CountersignDeniesForWantOfARecord", "one election", []string{
		`countersign_admissions_refused_total{code="audit_unavailable",service="admitter"} 0x19 4x80`}, 25 * minute, never, 0, nil},
	{"CountersignDeniesForWantOfARecord", "another code", []string{
		`countersign_admissions_refused_total{code="overloaded",service="admitter"} 0+1x100`}, 25 * minute, never, 0, nil},

	{"CountersignNobodyTakesRequests", "two admitters, neither takes any", []string{
		`countersign_admissions_open{shard="GOV",instance="a"} 1x19 0x40`, `countersign_admissions_open{shard="GOV",instance="b"} 1x27 0x40`}, 15 * minute, 8 * minute, 15 * minute,
		[]string{`{shard="GOV"}`}},
	{"CountersignNobodyTakesRequests", "one of two takes them", []string{
		`countersign_admissions_open{shard="GOV",instance="a"} 0x60`, `countersign_admissions_open{shard="GOV",instance="b"} 1x60`}, 15 * minute, never, 0, nil},

	{"CountersignNobodyTakesEvents", "no admitter", []string{
		`countersign_events_open{shard="GOV",instance="a"} 1x19 0x40`}, 15 * minute, 7 * minute, 0,
		[]string{`{shard="GOV"}`}},
	{"CountersignNobodyTakesEvents", "one stands by", []string{
		`countersign_events_open{shard="GOV",instance="a"} 0x60`, `countersign_events_open{shard="GOV",instance="b"} 1x60`}, 15 * minute, never, 0, nil},

	{"CountersignEventsAreNotStored", "for a quarter of an hour", []string{
		`countersign_events_refused_total{reason="unavailable",service="admitter"} 0x19 1x19 2x19 3x19 4x80`}, 40 * minute, 10 * minute, 39*minute + 2*step,
		[]string{`{reason="unavailable", service="admitter"}`}},
	{"CountersignEventsAreNotStored", "once", []string{
		`countersign_events_refused_total{reason="unavailable",service="admitter"} 0x19 1x80`}, 25 * minute, never, 0, nil},

	{"CountersignNoPolicy", "they do not compile", []string{
		`countersign_policy_usable{service="admitter",instance="i"} 1x7 0x20`}, 5 * minute, 3 * minute, 0,
		[]string{`{__name__="countersign_policy_usable", instance="i", service="admitter"}`}},
	{"CountersignNoPolicy", "half a minute after a start", []string{
		`countersign_policy_usable{service="admitter",instance="i"} 0x2 1x20`}, 5 * minute, never, 0, nil},

	{"CountersignServiceDown", "up says so", []string{
		`countersign_service_up{service="auditor",instance="i"} 1x7 0x20`, `up{job="countersign",instance="i"} 1x30`}, 7 * minute, 4 * minute, 0,
		[]string{`{__name__="countersign_service_up", instance="i", service="auditor"}`}},
	{"CountersignServiceDown", "no answer", []string{
		`up{job="countersign",instance="i"} 1x7 0x20`}, 7 * minute, 4 * minute, 0,
		[]string{`{__name__="up", instance="i", job="countersign"}`}},
	{"CountersignServiceDown", "a restart, and another job", []string{
		`up{job="countersign",instance="i"} 1x7 0x3 1x20`, `up{job="node",instance="i"} 0x30`}, 7 * minute, never, 0, nil},

	{"CountersignServiceEndsAgain", "four starts", []string{
		`process_start_time_seconds{job="countersign",instance="i",service="admitter"} 0x4 60x4 120x4 180x4 240x40`}, 15 * minute, 5 * minute, 0,
		[]string{`{instance="i", job="countersign", service="admitter"}`}},
	{"CountersignServiceEndsAgain", "three starts", []string{
		`process_start_time_seconds{job="countersign",instance="i",service="admitter"} 0x4 60x4 120x4 180x40`}, 15 * minute, never, 0, nil},

	{"CountersignDoesNotBegin", "an auditor without a position", []string{
		`countersign_ready{service="auditor",instance="i"} 1x100`, `countersign_active{service="auditor",instance="i",shard="GOV"} 1x100`}, 20 * minute, 15 * minute, 0,
		[]string{`{__name__="countersign_active", instance="i", service="auditor", shard="GOV"}`}},
	{"CountersignDoesNotBegin", "an admitter", []string{
		`countersign_ready{service="admitter",instance="i"} 0x100`}, 20 * minute, 15 * minute, 0,
		[]string{`{__name__="countersign_ready", instance="i", service="admitter"}`}},
	{"CountersignDoesNotBegin", "an auditor that makes evidence again, and a correlator that reads the log", []string{
		`countersign_ready{service="auditor",instance="i"} 0x100`, `countersign_active{service="auditor",instance="i",shard="GOV"} 1x100`,
		`countersign_evidence_oldest_unaudited_seconds{service="auditor",instance="i",shard="GOV"} 900x100`, `countersign_ready{service="correlator",instance="i"} 0x100`}, 20 * minute, never, 0, nil},

	{"CountersignNobodyActive", "two stand by", []string{
		`countersign_active{service="auditor",instance="a",shard="GOV"} 1x7 0x40`, `countersign_active{service="auditor",instance="b",shard="GOV"} 0x47`}, 5 * minute, 3 * minute, 0,
		[]string{`{service="auditor", shard="GOV"}`}},
	{"CountersignNobodyActive", "one of two is active", []string{
		`countersign_active{service="auditor",instance="a",shard="GOV"} 1x47`, `countersign_active{service="auditor",instance="b",shard="GOV"} 0x47`}, 5 * minute, never, 0, nil},

	{"CountersignAuditorBehind", "by ten minutes", []string{
		`countersign_evidence_oldest_unaudited_seconds{shard="GOV"} 1x7 600x40`}, 10 * minute, 7 * minute, 0,
		[]string{`{__name__="countersign_evidence_oldest_unaudited_seconds", shard="GOV"}`}},
	{"CountersignAuditorBehind", "by four", []string{
		`countersign_evidence_oldest_unaudited_seconds{shard="GOV"} 240x40`}, 10 * minute, never, 0, nil},

	{"CountersignDiskNearlyFull", "nine per cent are free", []string{
		`node_filesystem_avail_bytes{mountpoint="/var",instance="i"} 9x60`, `node_filesystem_size_bytes{mountpoint="/var",instance="i"} 100x60`}, 12 * minute, 10 * minute, 0,
		[]string{`{__name__="node_filesystem_avail_bytes", instance="i", mountpoint="/var"}`}},
	{"CountersignDiskNearlyFull", "eleven are, and another disk is full", []string{
		`node_filesystem_avail_bytes{mountpoint="/var",instance="i"} 11x60`, `node_filesystem_size_bytes{mountpoint="/var",instance="i"} 100x60`,
		`node_filesystem_avail_bytes{mountpoint="/boot",instance="i"} 0x60`, `node_filesystem_size_bytes{mountpoint="/boot",instance="i"} 100x60`}, 12 * minute, never, 0, nil},

	{"CountersignCorrelatorBehind", "by two minutes", []string{
		`countersign_correlator_lag_seconds{shard="GOV",service="correlator",instance="i"} 120x60`, `countersign_active{shard="GOV",service="correlator",instance="i"} 1x60`}, 10 * minute, 5 * minute, 0,
		[]string{`{__name__="countersign_correlator_lag_seconds", instance="i", service="correlator", shard="GOV"}`}},
	{"CountersignCorrelatorBehind", "one that stands by", []string{
		`countersign_correlator_lag_seconds{shard="GOV",service="correlator",instance="i"} 120x60`, `countersign_active{shard="GOV",service="correlator",instance="i"} 0x60`}, 10 * minute, never, 0, nil},

	{"CountersignGatewayFails", "two of a hundred", []string{
		`countersign_gateway_responses_total{status="200",endpoint="admit"} 0+98x60`, `countersign_gateway_responses_total{status="503",endpoint="admit"} 0+2x60`}, 10 * minute, 2*minute + step, 0,
		[]string{`{}`}},
	{"CountersignGatewayFails", "one of two hundred, and refusals", []string{
		`countersign_gateway_responses_total{status="200",endpoint="admit"} 0+99x60`, `countersign_gateway_responses_total{status="401",endpoint="admit"} 0+100x60`,
		`countersign_gateway_responses_total{status="503",endpoint="admit"} 0+1x60`}, 10 * minute, never, 0, nil},

	{"CountersignGatewayRefusesCallers", "two a second", []string{
		`countersign_gateway_responses_total{status="401",endpoint="admit"} 0+30x100`}, 25 * minute, 22*minute + 3*step, 0, []string{`{}`}},
	{"CountersignGatewayRefusesCallers", "one in two seconds", []string{
		`countersign_gateway_responses_total{status="401",endpoint="admit"} 0+7x100`}, 20 * minute, never, 0, nil},

	{"CountersignTokensEnd", "one", []string{
		`countersign_gateway_tokens_ending{instance="i"} 0x3 1x100`}, 20 * minute, 16 * minute, 0, []string{`{instance="i"}`}},
	{"CountersignTokensEnd", "none", []string{
		`countersign_gateway_tokens_ending{instance="i"} 0x100`}, 20 * minute, never, 0, nil},

	{"CountersignCertificateEnds", "in six days", []string{
		`countersign_gateway_certificate_seconds_left{instance="i"} 518400x100`}, 20 * minute, 15 * minute, 0,
		[]string{`{__name__="countersign_gateway_certificate_seconds_left", instance="i"}`}},
	{"CountersignCertificateEnds", "in eight", []string{
		`countersign_gateway_certificate_seconds_left{instance="i"} 691200x100`}, 20 * minute, never, 0, nil},

	{"CountersignGatewayHoldsCallersBack", "for a rate", []string{
		`countersign_gateway_refused_total{code="rate_limited"} 0+1x100`}, 20 * minute, 15*minute + step, 0, []string{`{code="rate_limited"}`}},
	{"CountersignGatewayHoldsCallersBack", "for a bad request", []string{
		`countersign_gateway_refused_total{code="bad_request"} 0+1x100`}, 20 * minute, never, 0, nil},

	{"CountersignGatewayStreamsNearlyFull", "streams", []string{
		`countersign_gateway_streams{instance="i"} 90x40`, `countersign_gateway_aaep_subscriptions{instance="i"} 0x40`, `countersign_gateway_streams_max{instance="i"} 100x40`}, 7 * minute, 5 * minute, 0,
		[]string{`{__name__="countersign_gateway_streams", instance="i"}`}},
	{"CountersignGatewayStreamsNearlyFull", "subscriptions", []string{
		`countersign_gateway_streams{instance="i"} 0x40`, `countersign_gateway_aaep_subscriptions{instance="i"} 90x40`, `countersign_gateway_streams_max{instance="i"} 100x40`}, 7 * minute, 5 * minute, 0,
		[]string{`{__name__="countersign_gateway_aaep_subscriptions", instance="i"}`}},
	{"CountersignGatewayStreamsNearlyFull", "half of both", []string{
		`countersign_gateway_streams{instance="i"} 50x40`, `countersign_gateway_aaep_subscriptions{instance="i"} 50x40`, `countersign_gateway_streams_max{instance="i"} 100x40`}, 7 * minute, never, 0, nil},

	{"CountersignGatewaySlow", "two seconds", []string{
		`countersign_gateway_request_seconds_bucket{le="1"} 0x80`, `countersign_gateway_request_seconds_bucket{le="2.5"} 0+5x80`, `countersign_gateway_request_seconds_bucket{le="+Inf"} 0+5x80`}, 15 * minute, 10*minute + step, 0, []string{`{}`}},
	{"CountersignGatewaySlow", "half a second", []string{
		`countersign_gateway_request_seconds_bucket{le="0.5"} 0+5x80`, `countersign_gateway_request_seconds_bucket{le="1"} 0+5x80`, `countersign_gateway_request_seconds_bucket{le="+Inf"} 0+5x80`}, 15 * minute, never, 0, nil},

	{"CountersignUnhealthy", "for five minutes", []string{
		`countersign_healthy{service="auditor",instance="i"} 1x3 0x40`}, 8 * minute, 6 * minute, 0,
		[]string{`{__name__="countersign_healthy", instance="i", service="auditor"}`}},
	{"CountersignUnhealthy", "for four", []string{
		`countersign_healthy{service="auditor",instance="i"} 1x3 0x15 1x40`}, 8 * minute, never, 0, nil},

	{"CountersignHighFindings", "a counter that grows", []string{
		`countersign_findings_total{severity="high",rule="r",shard="GOV",instance="i",service="correlator"} 3x39 4x400`,
		`process_start_time_seconds{instance="i",service="correlator"} -86400x440`}, 100 * minute, 10 * minute, 70*minute - 2*step, []string{`{rule="r"}`}},
	{"CountersignHighFindings", "the first one of a young process", []string{
		`countersign_findings_total{severity="high",rule="r",shard="GOV",instance="i",service="correlator"} _x19 1x400`,
		`process_start_time_seconds{instance="i",service="correlator"} 240x440`}, 100 * minute, 5*minute - step, 65*minute - 2*step, []string{`{rule="r"}`}},
	{"CountersignHighFindings", "no new one", []string{
		`countersign_findings_total{severity="high",rule="r",shard="GOV",instance="i",service="correlator"} 3x400`,
		`process_start_time_seconds{instance="i",service="correlator"} -86400x440`}, 100 * minute, never, 0, nil},

	{"CountersignOverloaded", "one in a quarter of a minute", []string{
		`countersign_admissions_refused_total{code="overloaded",service="admitter"} 0+1x60`}, 10 * minute, 5*minute + step, 0, []string{`{service="admitter"}`}},
	{"CountersignOverloaded", "a burst", []string{
		`countersign_admissions_refused_total{code="overloaded",service="admitter"} 0 50x60`}, 10 * minute, never, 0, nil},

	{"CountersignRequestsHeldBack", "a quota", []string{
		`countersign_admissions_refused_total{code="quota_exceeded",service="admitter"} 0+1x100`}, 20 * minute, 15*minute + step, 0,
		[]string{`{code="quota_exceeded", service="admitter"}`}},
	{"CountersignRequestsHeldBack", "a burst", []string{
		`countersign_admissions_refused_total{code="quota_exceeded",service="admitter"} 0 50x100`}, 20 * minute, never, 0, nil},

	{"CountersignCorrelatorDoesNotBegin", "for an hour", []string{
		`countersign_ready{service="correlator",instance="i"} 0x300`}, 70 * minute, 60 * minute, 0,
		[]string{`{__name__="countersign_ready", instance="i", service="correlator"}`}},
	{"CountersignCorrelatorDoesNotBegin", "for fifty minutes, and an admitter for longer", []string{
		`countersign_ready{service="correlator",instance="i"} 0x199 1x200`, `countersign_ready{service="admitter",instance="i"} 0x400`}, 70 * minute, never, 0, nil},

	{"CountersignEventsRefused", "of a quota", []string{
		`countersign_events_refused_total{reason="quota",service="admitter"} 0+1x100`}, 20 * minute, 15*minute + step, 0, []string{`{reason="quota"}`}},
	{"CountersignEventsRefused", "of a store that is away", []string{
		`countersign_events_refused_total{reason="unavailable",service="admitter"} 0+1x100`}, 20 * minute, never, 0, nil},

	{"CountersignReadersStall", "four times", []string{
		`countersign_reader_stalls_total{service="auditor"} 0x19 4x300`}, 70 * minute, 5 * minute, 0, []string{`{service="auditor"}`}},
	{"CountersignReadersStall", "twice", []string{
		`countersign_reader_stalls_total{service="auditor"} 0x19 2x300`}, 70 * minute, never, 0, nil},

	{"CountersignSlowInserts", "eight seconds", []string{
		`countersign_evidence_insert_seconds_bucket{le="5",shard="GOV"} 0x150`, `countersign_evidence_insert_seconds_bucket{le="10",shard="GOV"} 0+5x150`, `countersign_evidence_insert_seconds_bucket{le="+Inf",shard="GOV"} 0+5x150`}, 30 * minute, 15*minute + step, 0,
		[]string{`{shard="GOV"}`}},
	{"CountersignSlowInserts", "half a second", []string{
		`countersign_evidence_insert_seconds_bucket{le="0.5",shard="GOV"} 0+5x150`, `countersign_evidence_insert_seconds_bucket{le="5",shard="GOV"} 0+5x150`, `countersign_evidence_insert_seconds_bucket{le="+Inf",shard="GOV"} 0+5x150`}, 30 * minute, never, 0, nil},

	{"CountersignSlowRecords", "half a second", []string{
		`countersign_admission_record_seconds_bucket{le="0.25"} 0x80`, `countersign_admission_record_seconds_bucket{le="0.5"} 0+5x80`, `countersign_admission_record_seconds_bucket{le="+Inf"} 0+5x80`}, 15 * minute, 10*minute + step, 0, []string{`{}`}},
	{"CountersignSlowRecords", "a tenth", []string{
		`countersign_admission_record_seconds_bucket{le="0.1"} 0+5x80`, `countersign_admission_record_seconds_bucket{le="0.25"} 0+5x80`, `countersign_admission_record_seconds_bucket{le="+Inf"} 0+5x80`}, 15 * minute, never, 0, nil},

	{"CountersignNotEnforced", "for eight days", []string{
		`countersign_tenants_observed{service="admitter"} 2x46080`}, 192 * hour, 168 * hour, 0, []string{`{}`}},
	{"CountersignNotEnforced", "for six", []string{
		`countersign_tenants_observed{service="admitter"} 2x34560 0x11520`}, 192 * hour, never, 0, nil},

	{"CountersignUndecidedCall", "for more than an hour", []string{
		`countersign_correlator_oldest_undecided_seconds{shard="GOV"} 3700+15x60`}, 15 * minute, 10 * minute, 0,
		[]string{`{__name__="countersign_correlator_oldest_undecided_seconds", shard="GOV"}`}},
	{"CountersignUndecidedCall", "for minutes", []string{
		`countersign_correlator_oldest_undecided_seconds{shard="GOV"} 600+15x60`}, 15 * minute, never, 0, nil},

	{"CountersignRetentionBehind", "by two days", []string{
		`countersign_retention_overdue_seconds{shard="GOV"} 172800x300`}, 70 * minute, 60 * minute, 0,
		[]string{`{__name__="countersign_retention_overdue_seconds", shard="GOV"}`}},
	{"CountersignRetentionBehind", "by an hour", []string{
		`countersign_retention_overdue_seconds{shard="GOV"} 3600x300`}, 70 * minute, never, 0, nil},

	{"CountersignQuarantine", "a message", []string{
		`countersign_evidence_quarantined_total{shard="GOV"} 0x19 1x300`}, 70 * minute, 5 * minute, 0, []string{`{shard="GOV"}`}},
	{"CountersignQuarantine", "one of yesterday", []string{
		`countersign_evidence_quarantined_total{shard="GOV"} 1x300`}, 70 * minute, never, 0, nil},

	{"CountersignNoCheckpoint", "records without any", []string{
		`countersign_evidence_records_total{kind="event",shard="GOV"} 0+10x200`, `countersign_evidence_checkpoints_total{shard="GOV"} 5x200`}, 20 * minute, 5*minute + step, 0, []string{`{shard="GOV"}`}},
	{"CountersignNoCheckpoint", "one a minute, and a quiet log", []string{
		`countersign_evidence_records_total{kind="event",shard="GOV"} 0+10x200`, `countersign_evidence_checkpoints_total{shard="GOV"} 0+1x200`,
		`countersign_evidence_records_total{kind="event",shard="TWO"} 9x200`, `countersign_evidence_checkpoints_total{shard="TWO"} 1x200`}, 20 * minute, never, 0, nil},

	{"CountersignUnknownRule", "a finding", []string{
		`countersign_findings_total{rule="other",severity="low",shard="GOV"} 0x19 1x100`}, 20 * minute, 5 * minute, 0,
		[]string{`{rule="other", severity="low", shard="GOV"}`}},
	{"CountersignUnknownRule", "one of a rule that is known", []string{
		`countersign_findings_total{rule="r",severity="low",shard="GOV"} 0x19 1x100`}, 20 * minute, never, 0, nil},
}
