package inforce

import (
	"bytes"
	"fmt"

	"github.com/countersign-dev/countersign/compliance/internal/protocol"
	"github.com/countersign-dev/countersign/events"
)

// Check compares the member with what the decisions of its bundle name, and every complete text with its
// digest. wrong lists what does not hold.
func (r *Refs) Check(b []byte) (f File, wrong []string) {
	f, err := decode(b)
	if err != nil {
		return f, []string{err.Error()}
	}
	if again, err := f.Encode(); err != nil || !bytes.Equal(again, b) {
		return f, []string{"not in the form of RFC 8785"}
	}
	if r.truncated {
		wrong = append(wrong, fmt.Sprintf("decisions name more than %d policies or mandates", maxRefs))
	}
	return f, append(append(wrong, r.checkPolicies(f.Policies)...), r.checkMandates(f.Mandates)...)
}

func (r *Refs) checkPolicies(list []Policy) (wrong []string) {
	seen := map[policySet]bool{}
	for _, p := range list {
		k := policySet{p.Revision, p.Digest}
		name := fmt.Sprintf("policies of revision %d (%.30s)", p.Revision, p.Digest)
		if seen[k] {
			wrong = append(wrong, name+": listed twice")
		}
		seen[k] = true
		if p.Use != r.policies[k] {
			wrong = append(wrong, fmt.Sprintf("%s: %s", name, diffUse(p.Use, r.policies[k])))
		}
		docs := make([]events.PolicyDocument, len(p.Documents))
		whole := p.Withheld == 0
		for i, d := range p.Documents {
			docs[i] = events.PolicyDocument{Name: d.Name, Text: d.Text}
			whole = whole && len(d.Redacted) == 0
		}
		if misfit := textMisfit(p.Text, len(docs) > 0, whole); misfit != "" {
			wrong = append(wrong, name+": "+misfit)
		}
		if p.Error != "" && p.Digest != "" {
			wrong = append(wrong, name+": it has a digest, and an error, so that it could not have been used")
		}
		if p.Text == TextComplete && digestMismatch(docs, p.Digest) != "" {
			wrong = append(wrong, name+": the text does not give the digest")
		}
	}
	for k := range r.policies {
		if !seen[k] {
			wrong = append(wrong, fmt.Sprintf("decisions name policies of revision %d (%.30s), which are not listed", k.revision, k.digest))
		}
	}
	return wrong
}

func (r *Refs) checkMandates(list []Mandate) (wrong []string) {
	seen := map[events.MandateRef]bool{}
	for _, m := range list {
		k := events.MandateRef{ID: m.ID, Hash: m.Hash}
		if seen[k] {
			wrong = append(wrong, fmt.Sprintf("mandate %.60q: listed twice", m.ID))
		}
		seen[k] = true
		use, named := r.mandates[k]
		if !named {
			wrong = append(wrong, fmt.Sprintf("mandate %.60q: no decision names it", m.ID))
		} else if m.Use != use {
			wrong = append(wrong, fmt.Sprintf("mandate %.60q: %s", m.ID, diffUse(m.Use, use)))
		}
		if misfit := textMisfit(m.Text, m.Document != "", len(m.Redacted) == 0); misfit != "" {
			wrong = append(wrong, fmt.Sprintf("mandate %.60q: %s", m.ID, misfit))
		}
		if _, covered, found := protocol.MandateOf(m.Document, m.Hash); m.Text == TextComplete && (!found || covered != m.Document) {
			wrong = append(wrong, fmt.Sprintf("mandate %.60q: the text is not exactly what its hash covers", m.ID))
		}
	}
	for k := range r.mandates {
		if !seen[k] {
			wrong = append(wrong, fmt.Sprintf("decisions name mandate %.60q, which is not listed", k.ID))
		}
	}
	return wrong
}

// textMisfit says why what a file says of a text does not fit what it has of it; "" if it does. whole
// says that nothing is withheld or redacted.
func textMisfit(text string, there, whole bool) string {
	switch {
	case text == TextComplete && !whole, text == TextComplete && !there:
		return "its text is said to be complete, and is not"
	case text == TextPartial && !there:
		return "its text is said to be here in part, and nothing of it is here"
	case text == TextMissing && there:
		return "its text is said to be missing, and is here"
	case text != TextComplete && text != TextPartial && text != TextMissing:
		return fmt.Sprintf("its text is said to be %.60q, not complete, partial or missing", text)
	}
	return ""
}

func diffUse(said, is Use) string {
	return fmt.Sprintf("%d decisions (sequences %d to %d) are said to name it, and %d (%d to %d) do", said.Decisions, said.First, said.Last, is.Decisions, is.First, is.Last)
}
