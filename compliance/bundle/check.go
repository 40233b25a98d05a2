package bundle

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"regexp"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/compliance/controls"
	"github.com/countersign-dev/countersign/compliance/report"
	"github.com/countersign-dev/countersign/compliance/statement"
	"github.com/countersign-dev/countersign/compliance/table"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
)

// Codes of findings that only bundles have.
const (
	CodeReport    verify.Code = "bundle_report"    // the report does not follow from the records
	CodeControls  verify.Code = "bundle_controls"  // the controls do not follow from the records
	CodeStatement verify.Code = "bundle_statement" // the statement does not verify, or another key signed it
	CodeTable     verify.Code = "bundle_table"     // the table does not follow from the records
	CodeInForce   verify.Code = "bundle_in_force"  // policies and mandates are not those that the decisions name
)

// Options are further requirements on a bundle.
type Options struct {
	// Witnesses are keys of outside witnesses. Quorum of them (all, if it is 0) must have
	// signed the checkpoint; the report lists those that did.
	Witnesses []note.Verifier
	Quorum    int
	// Retired are retirements of keys that are known from elsewhere, because a bundle does
	// not show the rest of the log.
	Retired []events.KeyRetirement
	// StatementKey must have signed the statement; nil accepts any key, and a note then names
	// it.
	StatementKey ed25519.PublicKey
	// Known are further keys that may sign the statement without a note, such as the
	// checkpoint key that the bundle is verified with.
	Known []ed25519.PublicKey
}

// checker makes the checks that are not part of the format's own rules.
type checker struct {
	Options
	rep   *verify.Report
	notes []string // what was not checked, or only in part
}

func add(rep *verify.Report, code verify.Code, seq uint64, member, format string, args ...any) {
	rep.AddFindings(verify.Finding{Code: code, Seq: seq, Field: member, Detail: fmt.Sprintf(format, args...)})
}

func (k *checker) check(c contents, key note.Verifier) {
	k.witnesses(c)
	if len(k.Retired) > 0 {
		problems, _ := verify.RetiredKeys(key, c.Keys, k.Retired, c.Each) // the records were read before, so there is no error
		k.rep.AddFindings(problems...)
	}
	raw, signed := c.Members[MemberStatement]
	switch {
	case signed:
		k.statement(c, raw)
	case k.StatementKey != nil:
		add(k.rep, CodeStatement, 0, MemberStatement, "there is none, and one by key %s is demanded", keyID(k.StatementKey))
	}
	k.pages(c)
	k.table(c)
}

// witnesses checks the quorum, if there are witnesses.
func (k *checker) witnesses(c contents) {
	if len(k.Witnesses) == 0 {
		return
	}
	list := tree.DistinctKeys(k.Witnesses)
	quorum := k.Quorum
	if quorum <= 0 {
		quorum = len(list)
	}
	k.rep.Cosigned = tree.Cosignatures(c.CheckpointText, list)
	if have := len(k.rep.Cosigned); have < quorum {
		add(k.rep, verify.CodeWitnesses, 0, memberCheckpoint, "signed by %d of the %d witnesses, and %d are asked for", have, len(list), quorum)
	}
}

// table makes the table of the records again and compares it, if this version of the program can.
func (k *checker) table(c contents) {
	r, err := table.Compare(c.EachRow, c.Open(MemberTable))
	switch {
	case err != nil:
		add(k.rep, CodeTable, 0, MemberTable, "cannot be made again: %v", err)
	case r.Same:
	case r.OtherEdition:
		k.foreign(MemberTable)
	default:
		add(k.rep, CodeTable, 0, MemberTable, "not the table that follows from the records, first at byte %d", r.At)
	}
}

func keyID(key ed25519.PublicKey) string { return statement.Opened{Key: key}.KeyID() }

func (k *checker) statement(c contents, raw []byte) {
	o, err := statement.Open(raw)
	if err != nil {
		add(k.rep, CodeStatement, 0, MemberStatement, "%v", err)
		return
	}
	for _, d := range o.Compare(statementSubjects(c.Digests), statementPredicate(c)) {
		add(k.rep, CodeStatement, 0, MemberStatement, "%s", d)
	}
	switch {
	case k.StatementKey != nil && !o.Key.Equal(k.StatementKey):
		add(k.rep, CodeStatement, 0, MemberStatement, "signed by key %s, not by %s", o.KeyID(), keyID(k.StatementKey))
	case k.StatementKey == nil && !k.known(o.Key):
		k.notes = append(k.notes, fmt.Sprintf("the statement is signed by key %s; whose key that is was not checked: give --statement-key", o.KeyID()))
	}
}

func (k *checker) known(key ed25519.PublicKey) bool {
	for _, other := range k.Known {
		if key.Equal(other) {
			return true
		}
	}
	return false
}

// pages makes report and controls again and compares them, if this version of the program can.
func (k *checker) pages(c contents) {
	page, index, wrong, err := pages(c)
	for _, w := range wrong {
		add(k.rep, CodeInForce, 0, MemberInForce, "%s", w)
	}
	if err != nil {
		add(k.rep, CodeReport, 0, MemberReport, "cannot be made again: %v", err)
		return
	}
	k.made(CodeReport, MemberReport, c.Members[MemberReport], page, report.Edition())
	k.made(CodeControls, MemberControls, c.Members[MemberControls], index, controls.All().Edition)
}

// editions find what a member says of the version of the program that made it.
var editions = map[string]*regexp.Regexp{
	MemberReport:   regexp.MustCompile(`<meta name="generator" content="(countersign/report/v[0-9]+ [0-9a-f]{12} [0-9a-f.-]+)">`),
	MemberControls: regexp.MustCompile(`"edition": "([0-9]{4}-[0-9]{2}-[0-9]{2}\.[0-9a-f]{12})"`),
}

// made compares a member with the one that this version makes of the records. Only a member that names
// another edition may differ.
func (k *checker) made(code verify.Code, member string, got, want []byte, edition string) {
	named := editions[member].FindSubmatch(firstPart(got))
	switch {
	case bytes.Equal(got, want):
	case named == nil || string(named[1]) == edition:
		add(k.rep, code, 0, member, "not what follows from the records")
	default:
		k.foreign(member)
	}
}

func (k *checker) foreign(member string) {
	k.notes = append(k.notes, member+" names another version of this program, so it was only compared with the manifest: believe the records, not it")
}

func firstPart(b []byte) []byte { return b[:min(len(b), 4096)] }
