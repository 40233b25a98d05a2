package bundle

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/compliance/report"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/compliance/table"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// The members for readers. The statement is a signature over all other members and is optional.
const (
	MemberTable     = "records.parquet"     // the records as a table, for data analysis
	MemberInForce   = "in_force.json"       // every mandate and policy set that decided (of each at most 20,000), and the sets that were in force meanwhile, each with its text; why says what is withheld or missing, or that it is another text than decided
	MemberReport    = "report.html"         // the evidence for people: findings with remedies, verdicts with reasons, a timeline, completeness, controls
	MemberControls  = "controls.json"       // the controls that the records bear on
	MemberStatement = "statement.dsse.json" // may be missing: the exporter's signature over all other members
)

// readerMembers makes the table, which is streamed into a member, the list of policies and mandates, the
// report and the controls. It sets c.InForce.
func readerMembers(c *contents, rows *spooledMember, src inforce.Source) ([]member, error) {
	err := table.Write(c.EachRow, rows)
	if err == nil {
		err = rows.buf.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("making %s: %w", MemberTable, err)
	}
	if c.InForce, err = inforce.Collect(c.Manifest.Tenant, c.Each, src); err != nil {
		return nil, fmt.Errorf("making %s: %w", MemberInForce, err)
	}
	if len(c.InForce) > maxSmallMember {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are read", ErrInvalid, MemberInForce, len(c.InForce), maxSmallMember)
	}
	page, index, _, err := pages(*c)
	return []member{{MemberInForce, c.InForce}, {MemberReport, page}, {MemberControls, index}}, err
}

// pages makes the report and the controls. wrong lists the faults in the list of policies and
// mandates.
func pages(c contents) (page, index []byte, wrong []string, err error) {
	m := c.Manifest
	b := report.New(report.Source{Shard: m.Shard, Tenant: m.Tenant, Session: m.Session, From: m.From.Time, To: m.To.Time,
		Space: subject.Space{Prefix: m.SubjectPrefix}, Checkpoint: c.Checkpoint, Note: c.CheckpointText, Keys: c.Keys,
		Expired: m.Expired, Expiries: c.Expired})
	var refs inforce.Refs
	if err := c.Each(func(r evidence.Record) error { b.Add(r); refs.Add(r); return nil }); err != nil {
		return nil, nil, nil, err
	}
	f, wrong := refs.Check(c.InForce)
	b.InForce(f)
	var out bytes.Buffer
	if err := b.Render(&out); err != nil {
		return nil, nil, nil, fmt.Errorf("making the report: %w", err)
	}
	index, err = b.ControlSupport().Encode()
	return out.Bytes(), index, wrong, err
}

// signStatement signs the statement of a bundle over its other members.
func signStatement(key ed25519.PrivateKey, c contents, members []Member) ([]byte, error) {
	return statement.Sign(key, statementSubjects(members), statementPredicate(c))
}

func statementSubjects(members []Member) []statement.Subject {
	out := make([]statement.Subject, len(members))
	for i, m := range members {
		out[i] = statement.Subject{Name: m.Name, Digest: map[string]string{"sha256": m.SHA256}}
	}
	return out
}

func statementPredicate(c contents) statement.Predicate {
	return statement.Predicate{Format: c.Manifest.Format, Tenant: c.Manifest.Tenant, Session: c.Manifest.Session, Shard: c.Manifest.Shard,
		From: c.Manifest.From.String(), To: c.Manifest.To.String(), Records: c.Manifest.Records, Checkpoint: statement.Checkpoint{Size: c.Checkpoint.Size, Root: c.Checkpoint.Root.String()}}
}
