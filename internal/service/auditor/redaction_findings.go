package auditor

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/streams"
)

// redactionFinding is the content of a finding about a redaction.
type redactionFinding struct {
	severity               events.Severity
	explains, help, inputs string
}

var redactionFindings = map[string]redactionFinding{
	build.FindingRedactionFailed: {events.SeverityHigh, "A body could not be redacted and was withheld from the evidence; its bytes are in the quarantine.",
		"See whether the tenant's redaction policy can be used (countersign doctor); otherwise look at the message in the quarantine.",
		"a message, and the tenant's redaction policy"},
	build.FindingTooMany: {events.SeverityMedium, "A body held more secrets, or more that looked like secrets, than one record may have, and was withheld from the evidence; its bytes are in the quarantine.",
		"Ask the publisher what it sends. Text like this can be meant to keep a body out of the evidence.",
		"the body of a message"},
	build.FindingHeadersWithheld: {events.SeverityMedium, "The headers of a message could not be redacted and were withheld from the evidence.",
		"Look at the message in the log while it has it, and at the tenant's redaction policy.",
		"the headers of a message, and the tenant's redaction policy"},
	build.FindingSecretInSubject: {events.SeverityHigh, "The name of a session or of an event's type holds a secret or a value that was redacted elsewhere. It stands in subjects of the log, which subscribers see; a value without the form of a credential stands in the session and subject of the evidence, too.",
		"Change the secret, and have the publisher name its sessions otherwise.",
		"the subject of an event, and what was redacted in the event"},
}

// ownFindings writes the auditor's own findings to the log.
type ownFindings struct {
	shardAccess
	written uint64 // sequence up to which those about redaction were written: that of a published checkpoint
}

// reportRedaction writes findings about failed redactions before the evidence is stored. After a
// crash the same findings, with the same ids, may be written again; none is missing. Those of records
// that were signed are not written again when an older database is filled up.
func (o *ownFindings) reportRedaction(ctx context.Context, msgs []events.LogMessage, built []build.Built) error {
	var found []events.Finding
	for i, b := range built {
		if msgs[i].Seq <= o.written {
			continue
		}
		for _, code := range b.RedactionFindings {
			found = append(found, o.redactionFinding(code, msgs[i], b.Record))
		}
	}
	if len(found) == 0 {
		return nil
	}
	if err := o.store(ctx, found...); err != nil {
		return fmt.Errorf("writing %d findings about redaction: %w", len(found), err)
	}
	return nil
}

func (o *ownFindings) redactionFinding(code string, m events.LogMessage, rec evidence.Record) events.Finding {
	about := redactionFindings[code]
	f := events.Finding{
		FindingID: fmt.Sprintf("%s-%s-%d", code, o.shard, m.Seq), Rule: code, Severity: about.severity, Tenant: rec.Tenant, Session: rec.Session,
		EventIDs: []string{}, Seqs: []uint64{m.Seq}, Explanation: about.explains, Remedy: about.help, DetectedAt: events.At(m.Time),
	}
	if code == build.FindingSecretInSubject {
		f.Session = "" // the name is the secret: do not repeat it
	}
	return f
}

// store writes findings to the log and counts them.
func (o *ownFindings) store(ctx context.Context, found ...events.Finding) error {
	var out []streams.Msg
	for _, f := range found {
		body, err := events.Encode(f)
		if err != nil {
			return err
		}
		out = append(out, streams.Msg{
			Subject: o.subjectOf(f), Body: body,
			Header: cloudevents.Binary(cloudevents.Attributes{
				ID: f.FindingID, Source: o.source(), Type: events.TypeFinding, Time: f.DetectedAt.Time,
			}),
		})
	}
	if err := streams.StoreAll(ctx, o.nc, out); err != nil {
		return err
	}
	counts := o.counters()
	for _, f := range found {
		counts.Found(f)
	}
	return nil
}

func (o *ownFindings) subjectOf(f events.Finding) string {
	return o.space.Finding(f.Tenant, string(f.Severity), f.Session)
}
