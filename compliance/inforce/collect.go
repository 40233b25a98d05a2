package inforce

import (
	"fmt"
	"maps"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
)

// Change is the log's record that a set of policies came into force.
type Change struct {
	Seq    uint64
	At     events.Time
	Change events.PolicyChange
}

// Source supplies the texts. why says in words why a text is not available; an error is about the source
// as a whole.
type Source interface {
	// Changes calls yield for the policy changes of a shard up to a sequence, in order.
	Changes(last uint64, yield func(Change) error) error
	// Policies returns the documents of a revision that were too large for the log.
	Policies(revision uint64) (docs []events.PolicyDocument, why string, err error)
	// Mandate returns all documents that were ever stored under an id of the tenant.
	Mandate(id string) (docs []string, why string, err error)
}

// Bounds of the texts in a file; a text beyond them is marked as left out.
const (
	maxTexts    = 24 << 20
	maxPolicies = 5_000 // that no decision names
)

// Collect makes the file for a tenant's records: what their decisions name, and every set of policies
// that was in force between the first and the last record. The error is ErrTooMany if it cannot list
// them all.
func Collect(tenant string, records func(yield func(evidence.Record) error) error, src Source) ([]byte, error) {
	var refs Refs
	if err := records(func(r evidence.Record) error { refs.Add(r); return nil }); err != nil {
		return nil, err
	}
	if refs.truncated {
		return nil, ErrTooMany
	}
	col := collector{tenant: tenant, src: src, refs: &refs, changes: map[policySet]Change{}}
	if err := src.Changes(refs.last, col.addChange); err != nil {
		return nil, fmt.Errorf("reading the changes of policies: %w", err)
	}
	f, err := col.buildFile()
	if err != nil {
		return nil, err
	}
	return f.Encode()
}

type collector struct {
	tenant        string
	src           Source
	refs          *Refs
	changes       map[policySet]Change
	inForceBefore *policySet // in force when the first record was stored, if it is in changes only for that reason
	textBytes     int        // bytes of the texts so far
}

// addChange keeps the changes that decisions name or that were in force, the first record of each.
func (col *collector) addChange(c Change) error {
	key := policySet{c.Change.Revision, c.Change.Digest}
	_, known := col.changes[key]
	_, named := col.refs.policies[key]
	early := c.Seq < col.refs.first
	if early && col.inForceBefore != nil && *col.inForceBefore != key {
		delete(col.changes, *col.inForceBefore)
		col.inForceBefore = nil
	}
	if known || !named && !early && len(col.changes) >= maxPolicies {
		return nil
	}
	if early && !named {
		col.inForceBefore = &key
	}
	col.changes[key] = c
	return nil
}

func (col *collector) buildFile() (f File, err error) {
	keys := map[policySet]bool{}
	for k := range col.changes {
		keys[k] = true
	}
	for k := range col.refs.policies {
		keys[k] = true
	}
	for _, k := range sortedSets(keys) {
		p, err := col.buildPolicy(k)
		if err != nil {
			return f, err
		}
		f.Policies = append(f.Policies, p)
	}
	for ref, use := range col.refs.mandates {
		f.Mandates = append(f.Mandates, Mandate{ID: ref.ID, Hash: ref.Hash, Use: use})
	}
	sortMandates(f.Mandates)
	for i := range f.Mandates {
		if err := col.fillMandate(&f.Mandates[i]); err != nil {
			return f, err
		}
	}
	return f, nil
}

func sortedSets(keys map[policySet]bool) []policySet {
	list := make([]Policy, 0, len(keys))
	for k := range maps.Keys(keys) {
		list = append(list, Policy{Revision: k.revision, Digest: k.digest})
	}
	sortPolicies(list)
	out := make([]policySet, len(list))
	for i, p := range list {
		out[i] = policySet{p.Revision, p.Digest}
	}
	return out
}

// errorWithheld stands for the compiler's error where the set has documents that the tenant may not
// see: it names files, policies, rules and parts of their conditions.
const errorWithheld = "the error is withheld: the set has documents that speak of other tenants, or that are not here"

func (col *collector) buildPolicy(k policySet) (Policy, error) {
	p := Policy{Revision: k.revision, Digest: k.digest, Use: col.refs.policies[k], Text: TextMissing}
	c, held := col.changes[k]
	if !held {
		p.Why = "the log has no record of its coming into force"
		return p, nil
	}
	p.Seq, p.At = c.Seq, c.At
	p.Author, _ = redaction.Text(c.Change.Author)
	if c.Change.Error != "" {
		p.Error = errorWithheld
	}
	docs := c.Change.Documents
	if c.Change.Omitted {
		var err error
		if docs, p.Why, err = col.src.Policies(k.revision); err != nil || p.Why != "" {
			return p, err
		}
	}
	if len(visibleDocuments(docs, col.tenant)) == len(docs) {
		p.Error, _ = redaction.Text(c.Change.Error)
	}
	if p.Why = digestMismatch(docs, k.digest); p.Why != "" {
		return p, nil
	}
	col.addTexts(&p, docs)
	if p.Withheld == 0 { // otherwise the message may mention what is withheld
		p.Message, _ = redaction.Text(c.Change.Message)
	}
	return p, nil
}

// digestMismatch says why a text does not have a digest; "" if it has.
func digestMismatch(docs []events.PolicyDocument, digest string) (why string) {
	defer func() {
		if recover() != nil {
			why = "the text cannot be compiled"
		}
	}()
	list := make([]policy.Document, len(docs))
	for i, d := range docs {
		list[i] = policy.Document{Name: d.Name, Data: []byte(d.Text)}
	}
	compiled, err := policy.Compile(list)
	switch {
	case digest == "":
		return "it could not be used, so it has no digest that a text could be compared with"
	case err != nil:
		return "the text that is stored cannot be compiled, so it is not what decided"
	case compiled.Digest() != digest:
		return "the text that is stored has another digest, so it is not what decided"
	}
	return ""
}

// addTexts adds the documents that the tenant may see.
func (col *collector) addTexts(p *Policy, docs []events.PolicyDocument) {
	shown := visibleDocuments(docs, col.tenant)
	p.Withheld = len(docs) - len(shown)
	p.Text = TextComplete
	for _, d := range shown {
		text, found := redaction.Text(d.Text)
		name, hidden := redaction.Text(d.Name)
		if col.textBytes += len(text); col.textBytes > maxTexts {
			p.Documents, p.Text, p.Why = nil, TextMissing, "the texts of this bundle are too long together; this one was left out"
			return
		}
		if len(found)+len(hidden) > 0 {
			p.Text, p.Why = TextPartial, "secrets or personal data in it are redacted, so the text here does not give the digest"
		}
		p.Documents = append(p.Documents, Document{name, text, found})
	}
	if p.Withheld > 0 {
		p.Text, p.Why = TextPartial, "documents that speak of other tenants are withheld, so what is here does not give the digest"
	}
	if len(p.Documents) == 0 {
		p.Text = TextMissing
	}
}

func (col *collector) fillMandate(m *Mandate) error {
	m.Text = TextMissing
	docs, why, err := col.src.Mandate(m.ID)
	if err != nil || why != "" {
		m.Why = why
		return err
	}
	doc, token, found := findMandate(docs, m.Hash)
	if !found {
		m.Why = "no text that is stored under this id has this hash, so none is what decided"
		return nil
	}
	text, redacted, err := redaction.JSON(token, []byte(doc))
	switch {
	case err != nil:
		m.Why = "the text cannot be redacted, so it is withheld"
		return nil
	case col.textBytes+len(text) > maxTexts:
		m.Why = "the texts of this bundle are too long together; this one was left out"
		return nil
	}
	col.textBytes += len(text)
	m.Document, m.Redacted, m.Text = text, redacted, TextComplete
	if len(redacted) > 0 {
		m.Text, m.Why = TextPartial, "secrets, personal data or protected parts are redacted, so the text here does not give the hash"
	}
	return nil
}

// findMandate finds the document that is the mandate with a hash, without what the hash does not cover, and
// the protocol of the mandate.
func findMandate(docs []string, hash string) (covered, token string, found bool) {
	for _, d := range docs {
		if token, covered, found := protocol.MandateOf(d, hash); found {
			return covered, token, true
		}
	}
	return "", "", false
}
