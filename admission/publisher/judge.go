package publisher

import (
	"encoding/json"
	"math"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// Claim is what a request says of the tool that it proposes to run.
type Claim struct {
	Name      string // as it was sent
	Canonical Field  // of metadata.tool_identity
	Provider  Field
	Hashes    []Field // of the tool's schema
	Mandate   bool    // a mandate is named, so that its evaluator has judged
	Contract  bool    // a contract is there, so that its evaluator has judged
}

// Field is a text and its place in the request; "" is nothing said.
type Field struct{ Text, Path string }

// Finding is one thing to say. A verdict of allow only records it.
type Finding struct {
	Verdict    events.Verdict
	Code, Path string
}

// Judge holds a claim against the catalogue. Nothing it finds makes anything
// looser. A tenant without a catalogue gets no findings.
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
		// A tool that nobody knows cannot be one that somebody does.
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
		{RequireMandate, CodeMandateRequired, c.Mandate},
		{RequireContract, CodeContractRequired, c.Contract},
		{RequireSchemaHash, CodeSchemaRequired, stated},
	} {
		if slices.Contains(e.Requires, r.what) && !r.there {
			deny(r.code, "")
		}
	}
}

// isCalled reports whether a name is one of the entry's for everybody.
func (e *Entry) isCalled(t Tool, name string) bool { return t.tenant.names[scopedName{"", name}] == e }

// categoryRank orders what a tool may do, from the least.
var categoryRank = map[string]int{"public_read": 1, "private_read": 2, "write": 3}

// Understates reports whether a contract's category says less than the
// catalogue's. A tool that is not known, or whose category is not, does nothing
// that could be understated.
func (e *Entry) Understates(category string) bool {
	return e != nil && categoryRank[category] > 0 && categoryRank[category] < categoryRank[e.Category]
}

// Amount is money as the arguments of a call have it.
type Amount struct {
	TotalMinor int64
	Currency   string // "" if the entry does not say where it is
}

// AmountIn reads the money out of the arguments. there is false if the entry does
// not say where it is; ok is false if it says so and there is none.
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

// minorUnits reads an amount in minor units: a whole number that is not negative,
// however it is written.
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
		v = m[pointerUnescaper.Replace(key)]
	}
	return v
}

var pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")
