// Package compliance makes and checks what a bundle of evidence holds for
// people who are not operators: a report to read, an index of the controls that
// the evidence bears on, and a signed statement over the whole.
//
// Report and controls follow from the records alone, so that a verifier makes
// them again and compares. Everything here is pure: data in, data out.
package compliance

import (
	"bytes"
	"crypto/ed25519"
	"fmt"

	"github.com/countersign-dev/countersign/compliance/controls"
	"github.com/countersign-dev/countersign/compliance/inforce"
	"github.com/countersign-dev/countersign/compliance/report"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/compliance/table"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// Codes of the problems that Check reports.
const (
	CodeReport    evidence.Code = "bundle_report"    // the report is not what follows from the records
	CodeControls  evidence.Code = "bundle_controls"  // likewise the controls
	CodeStatement evidence.Code = "bundle_statement" // the statement does not hold, or is not by the key it should be by
	CodeTable     evidence.Code = "bundle_table"     // the table is not what follows from the records
	CodeInForce   evidence.Code = "bundle_in_force"  // policies and mandates are not those that the decisions name
)

// Attach makes the report and the controls of a session or a range; see evidence.BundleInput.
func Attach(c evidence.BundleContents) ([]evidence.BundleMember, error) {
	page, index, _, err := makeAttachments(c)
	if err != nil {
		return nil, err
	}
	return []evidence.BundleMember{{Name: evidence.MemberReport, Data: page}, {Name: evidence.MemberControls, Data: index}}, nil
}

// Extra makes the table, and the list of what decided from what src has.
func Extra(src inforce.Source) *evidence.Extra {
	return &evidence.Extra{Table: table.Write, InForce: func(c evidence.BundleContents) ([]byte, error) { return inforce.Collect(c, src) }}
}

// makeAttachments also says what is wrong with the list of what decided, where the
// bundle has one.
func makeAttachments(c evidence.BundleContents) (page, index []byte, wrong []string, err error) {
	m := c.Manifest
	b := report.New(report.Source{Shard: m.Shard, Tenant: m.Tenant, Session: m.Session, From: m.From.Time, To: m.To.Time,
		Space: subject.Space{Prefix: m.SubjectPrefix}, Checkpoint: c.Checkpoint, Note: c.CheckpointText, Keys: c.Keys,
		Expired: m.Expired, Expiries: c.Expired})
	var refs inforce.Refs
	if err := c.Each(func(r evidence.Record) error { b.Add(r); refs.Add(r); return nil }); err != nil {
		return nil, nil, nil, err
	}
	if c.InForce != nil {
		var f inforce.File
		f, wrong = refs.Check(c.InForce)
		b.InForce(f)
	}
	var out bytes.Buffer
	if err := b.Render(&out); err != nil {
		return nil, nil, nil, fmt.Errorf("making the report: %w", err)
	}
	index, err = b.Bearing().Encode()
	return out.Bytes(), index, wrong, err
}

// Signer gives the function that signs the statement of a bundle with key.
func Signer(key ed25519.PrivateKey) func(evidence.BundleContents, []evidence.ManifestMember) ([]byte, error) {
	return func(c evidence.BundleContents, members []evidence.ManifestMember) ([]byte, error) {
		return statement.Sign(key, statementSubjects(members), statementPredicate(c))
	}
}

func statementSubjects(members []evidence.ManifestMember) []statement.Subject {
	out := make([]statement.Subject, len(members))
	for i, m := range members {
		out[i] = statement.Subject{Name: m.Name, Digest: map[string]string{"sha256": m.SHA256}}
	}
	return out
}

func statementPredicate(c evidence.BundleContents) statement.Predicate {
	return statement.Predicate{Format: c.Manifest.Format, Tenant: c.Manifest.Tenant, Session: c.Manifest.Session, Shard: c.Manifest.Shard,
		From: c.Manifest.From.String(), To: c.Manifest.To.String(), Records: c.Manifest.Records, Checkpoint: statement.Checkpoint{Size: c.Checkpoint.Size, Root: c.Checkpoint.Root.String()}}
}

// Checker checks what evidence.VerifyBundle only compares with the manifest.
type Checker struct {
	// StatementKey must have signed the statement; nil lets any key do, and Notes
	// then name it.
	StatementKey ed25519.PublicKey
	// Known are further keys whose statements need no note, such as the checkpoint
	// key that the bundle is verified with.
	Known []ed25519.PublicKey

	// Notes are what was not checked, or only in part, for people. Check sets it.
	Notes []string
}

// Check is an evidence.BundleCheck.
func (k *Checker) Check(c evidence.BundleContents) (problems []evidence.Finding) {
	k.Notes = nil
	raw, signed := c.Members[evidence.MemberStatement]
	switch {
	case signed:
		problems = k.checkStatement(c, raw)
	case k.StatementKey != nil:
		problems = append(problems, newFinding(CodeStatement, evidence.MemberStatement, "there is none, and one by key %s is demanded", keyID(k.StatementKey)))
	}
	if c.Manifest.Format == evidence.BundleFormat {
		return problems
	}
	return append(append(problems, k.checkDerived(c)...), k.checkTable(c)...)
}

// checkTable makes the table of the records again, where this version of the program
// can.
func (k *Checker) checkTable(c evidence.BundleContents) []evidence.Finding {
	if c.Open(evidence.MemberTable) == nil {
		return nil
	}
	r, err := table.Compare(c)
	switch {
	case err != nil:
		return []evidence.Finding{newFinding(CodeTable, evidence.MemberTable, "cannot be made again: %v", err)}
	case r.Same:
		return nil
	case r.OtherEdition:
		k.noteOtherEdition(evidence.MemberTable)
		return nil
	}
	return []evidence.Finding{newFinding(CodeTable, evidence.MemberTable, "not the table that follows from the records, first at byte %d", r.At)}
}

func newFinding(code evidence.Code, member, format string, args ...any) evidence.Finding {
	return evidence.Finding{Code: code, Field: member, Detail: fmt.Sprintf(format, args...)}
}

func keyID(key ed25519.PublicKey) string { return statement.Opened{Key: key}.KeyID() }

func (k *Checker) checkStatement(c evidence.BundleContents, raw []byte) (problems []evidence.Finding) {
	o, err := statement.Open(raw)
	if err != nil {
		return []evidence.Finding{newFinding(CodeStatement, evidence.MemberStatement, "%v", err)}
	}
	for _, d := range o.Compare(statementSubjects(c.Digests()), statementPredicate(c)) {
		problems = append(problems, newFinding(CodeStatement, evidence.MemberStatement, "%s", d))
	}
	switch {
	case k.StatementKey != nil && !o.Key.Equal(k.StatementKey):
		problems = append(problems, newFinding(CodeStatement, evidence.MemberStatement, "signed by key %s, not by %s", o.KeyID(), keyID(k.StatementKey)))
	case k.StatementKey == nil && !k.isKnownKey(o.Key):
		k.Notes = append(k.Notes, fmt.Sprintf("the statement is signed by key %s; whose key that is was not checked: give --statement-key", o.KeyID()))
	}
	return problems
}

func (k *Checker) isKnownKey(key ed25519.PublicKey) bool {
	for _, other := range k.Known {
		if key.Equal(other) {
			return true
		}
	}
	return false
}

// checkDerived makes report and controls again, where this version of the program can.
func (k *Checker) checkDerived(c evidence.BundleContents) (problems []evidence.Finding) {
	page, index, wrong, err := makeAttachments(c)
	for _, w := range wrong {
		problems = append(problems, newFinding(CodeInForce, evidence.MemberInForce, "%s", w))
	}
	if err != nil {
		return []evidence.Finding{newFinding(CodeReport, evidence.MemberReport, "cannot be made again: %v", err)}
	}
	got := c.Members[evidence.MemberReport]
	switch {
	case bytes.Equal(got, page):
	case bytes.Contains(firstPart(got), []byte(`<meta name="generator" content="`+report.Edition()+`">`)):
		problems = append(problems, newFinding(CodeReport, evidence.MemberReport, "not the report that follows from the records"))
	default:
		k.noteOtherEdition(evidence.MemberReport)
	}
	got = c.Members[evidence.MemberControls]
	switch {
	case bytes.Equal(got, index):
	case bytes.Contains(firstPart(got), []byte(`"edition": "`+controls.All().Edition+`"`)):
		problems = append(problems, newFinding(CodeControls, evidence.MemberControls, "not the controls that follow from the records"))
	default:
		k.noteOtherEdition(evidence.MemberControls)
	}
	return problems
}

func (k *Checker) noteOtherEdition(member string) {
	k.Notes = append(k.Notes, member+" was made by another version of this program, so it was only compared with the manifest: believe the records, not it")
}

func firstPart(b []byte) []byte { return b[:min(len(b), 4096)] }
