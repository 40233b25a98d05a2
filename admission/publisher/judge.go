package publisher

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Claim is what a request states about the tool that it proposes to run.
type Claim struct {
	Name      string // as sent
	Canonical Field  // of metadata.tool_identity
	Provider  Field
	Hashes    []Field // of the tool's schema
	Category  Field   // of a contract about the tool

	// Evaluated are the requirements of the catalogue (RequireMandate, RequireContract) for which
	// the request has the document, so that its evaluator has run.
	Evaluated []string
}

// Field is a text and its place in the request; Text is "" if the request does not have it.
type Field struct{ Text, Path string }

// Finding is one reason. With verdict allow it is only recorded.
type Finding struct {
	Verdict    events.Verdict
	Code, Path string
}

// Judge compares a claim with the catalogue. No finding loosens a verdict. A tenant without a
// catalogue gets no findings.
func Judge(t Tool, c Claim) (found []Finding) {
	deny := func(code, path string) { found = append(found, Finding{events.Deny, code, path}) }
	switch t.Status {
	case NoCatalogue:
		return nil
	case Broken:
		deny(CodeBroken, "")
		return found
	case CaseDiffers:
		deny(CodeNameCase, "")
	case Unknown:
		if c.Name != "" {
			found = append(found, Finding{events.Allow, CodeUncatalogued, ""})
		}
		// An unknown tool must not claim the canonical name of a known one.
		if t.Canonical(c.Canonical.Text) {
			deny(CodeIdentity, c.Canonical.Path)
		}
	case Known:
		t.Entry.checkClaim(t, c, deny)
	}
	return found
}

func (e *Entry) checkClaim(t Tool, c Claim, deny func(code, path string)) {
	if c.Canonical.Text != "" && c.Canonical.Text != e.Name {
		deny(CodeIdentity, c.Canonical.Path)
	}
	if p := c.Provider; p.Text != "" && p.Text != c.Name && !e.isCalled(t, p.Text) {
		deny(CodeIdentity, p.Path)
	}
	stated := false
	for _, h := range c.Hashes {
		if h.Text == "" {
			continue
		}
		stated = true
		if len(e.SchemaHashes) > 0 && !slices.Contains(e.SchemaHashes, strings.ToLower(h.Text)) {
			deny(CodeSchema, h.Path)
		}
	}
	for _, r := range []struct {
		what, code string
		there      bool
	}{
		{RequireMandate, CodeMandateRequired, slices.Contains(c.Evaluated, RequireMandate)},
		{RequireContract, CodeContractRequired, slices.Contains(c.Evaluated, RequireContract)},
		{RequireSchemaHash, CodeSchemaRequired, stated},
	} {
		if slices.Contains(e.Requires, r.what) && !r.there {
			deny(r.code, "")
		}
	}
	if e.Understates(c.Category.Text) {
		deny(CodeCategory, c.Category.Path)
	}
}

// isCalled reports whether a name is one of the entry's names for all publishers.
func (e *Entry) isCalled(t Tool, name string) bool { return t.tenant.names[scopedName{"", name}] == e }

// categoryRank orders the categories by what a tool may do, the least first.
var categoryRank = map[string]int{"public_read": 1, "private_read": 2, "write": 3}

// Understates reports whether a contract's category states less than the catalogue's. An
// unknown tool, or one without a known category, cannot be understated.
func (e *Entry) Understates(category string) bool {
	return e != nil && categoryRank[category] > 0 && categoryRank[category] < categoryRank[e.Category]
}

// Amount is money in the arguments of a call.
type Amount struct {
	TotalMinor int64
	Currency   string // "" if the entry does not locate it
}

// AmountIn reads the money from the arguments. there is false if the entry does not locate it;
// ok is false if the entry does and the arguments have none.
func (b Binding) AmountIn(args map[string]any) (a Amount, there, ok bool) {
	if b.TotalMinor == "" {
		return a, false, true
	}
	total, whole := minorUnits(valueAt(args, b.TotalMinor))
	a = Amount{TotalMinor: total, Currency: b.Currency}
	if strings.HasPrefix(b.Currency, "/") {
		a.Currency, _ = valueAt(args, b.Currency).(string)
	}
	return a, true, whole && (a.Currency != "" || b.Currency == "")
}

// minorUnits reads an amount in minor units: a non-negative whole number in any notation.
func minorUnits(v any) (int64, bool) {
	n, _ := v.(json.Number)
	f, err := n.Float64()
	if err != nil || f < 0 || f > 1<<53 || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// valueAt follows a JSON pointer through objects.
func valueAt(tree map[string]any, pointer string) any {
	var v any = tree
	for _, key := range strings.Split(pointer, "/")[1:] {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[strictjson.UnescapePointer(key)]
	}
	return v
}
