package aump

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
)

// TestMandatesOfASession: what decisions say of a mandate is kept by tenant, and a mandate
// beyond the bound is noted without being kept.
func TestMandatesOfASession(t *testing.T) {
	ms := NewMandates()
	f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1")}
	for i := range 3 * maxMandateTexts {
		ms.RecordUse(f, &events.MandateRef{ID: "m" + strconv.Itoa(i), Hash: "sha256:" + strconv.Itoa(i)})
	}
	ids, _ := ms.ofSession.Get("acme", f.Key)
	if len(ids) != maxMandateTexts+1 {
		t.Errorf("a session has %d mandates", len(ids))
	}
	if ids, known := ms.ofSession.Get("other", f.Key); known {
		t.Errorf("another tenant's session has %d", len(ids))
	}
}

// TestRevocations: a revocation is of one hash, and each of its two writers can delete their own only.
func TestRevocations(t *testing.T) {
	revokedAt := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	hash := func(of string) string { return "sha256-" + strings.Repeat(of, 64) }
	step := func(change, hash, by string) events.MandateStep {
		return events.MandateStep{Tenant: "acme", MandateID: "m1", Change: change, Hash: hash, By: by}
	}
	byOperator, byPrincipal := step("revoked", hash("a"), "operator"), step("revoked", hash("a"), "principal")
	var many []events.MandateStep
	for i := range 2 * maxMandateTexts {
		many = append(many, step("revoked", "sha256-"+strconv.Itoa(i), "operator"))
	}
	for name, tc := range map[string]struct {
		steps []events.MandateStep
		of    string // the hash of the evidence
		want  bool   // whether it is under a revoked mandate
	}{
		"revoked":                           {[]events.MandateStep{byOperator}, hash("a"), true},
		"in capitals":                       {[]events.MandateStep{byOperator}, "sha256-" + strings.Repeat("A", 64), true},
		"the mandate put after it":          {[]events.MandateStep{byOperator, step("put", hash("b"), "")}, hash("b"), false},
		"the one before it":                 {[]events.MandateStep{step("put", hash("b"), ""), byOperator}, hash("a"), true},
		"deleted":                           {[]events.MandateStep{byOperator, step("revocation_deleted", hash("a"), "operator")}, hash("a"), false},
		"one of two deleted":                {[]events.MandateStep{byOperator, byPrincipal, step("revocation_deleted", hash("a"), "operator")}, hash("a"), true},
		"another hash's revocation deleted": {[]events.MandateStep{byOperator, step("revocation_deleted", hash("b"), "operator")}, hash("a"), true},
		"after many":                        {append(many, byOperator), hash("a"), true},
		"another tenant's":                  {[]events.MandateStep{{Tenant: "globex", MandateID: "m1", Change: "revoked", Hash: hash("a"), By: "operator"}}, hash("a"), false},
	} {
		ms, found := NewMandates(), &texts{}
		ms.Configure(found, 0)
		ms.ApplyChange(events.MandateChange{Changes: tc.steps}, revokedAt)
		ms.CheckEvidence(&fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), Event: &aump.Evidence{Sequence: 1, Ref: aump.Ref{ID: "m1", Hash: tc.of}, Result: aump.Allowed, CreatedAt: revokedAt.Add(time.Hour)}})
		if slices.Contains(found.checks, "AUMP-E-004") != tc.want {
			t.Errorf("%s: %q", name, found.checks)
		}
		if md := ms.ensureMandate("acme", "m1"); len(md.revoked) > maxMandateTexts {
			t.Errorf("%s: %d revocations", name, len(md.revoked))
		}
	}
}

// TestMandatesOutliveAFlood: evidence of another tenant, about as many mandates as a table holds,
// makes no finding about a tenant and loses none. Evidence of the tenant's own that invents
// mandates loses no revocation.
func TestMandatesOutliveAFlood(t *testing.T) {
	revokedAt, hash := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), "sha256-"+strings.Repeat("a", 64)
	for flooding, want := range map[string][]string{"acme": {""}, "globex": {"", "numbers are missing"}} {
		ms, found := NewMandates(), &texts{}
		ms.Configure(found, 0)
		evidence := func(tenant, mandate string, n int64) {
			f := &fact.Fact{Origin: fact.OriginOf(tenant, "rt1", "s1"), Event: &aump.Evidence{Sequence: n, Ref: aump.Ref{ID: mandate, Hash: hash}, Result: aump.Allowed, CreatedAt: revokedAt.Add(time.Hour)}}
			ms.CheckEvidence(f)
		}
		ms.ApplyChange(events.MandateChange{Changes: []events.MandateStep{{Tenant: "globex", MandateID: "revoked", Change: "revoked", Hash: hash}}}, revokedAt)
		evidence("globex", "m1", 1)
		for i := range maxMandates {
			evidence(flooding, "invented-"+strconv.Itoa(i), 1)
		}
		evidence("globex", "revoked", 1)
		evidence("globex", "m1", 2)
		if !slices.Equal(found.said, want) {
			t.Errorf("%s floods: %q, want %q", flooding, found.said, want)
		}
	}
}

// texts collects the texts of findings about sessions.
type texts struct {
	fact.Reporter
	said, checks []string
}

func (x *texts) ReportSessionFinding(_ *fact.Fact, _ fact.Origin, found *catalogue.Finding) string {
	x.said, x.checks = append(x.said, found.Text), append(x.checks, found.Check)
	return found.Text
}

// TestNumbersOfAMandate: the number of refused evidence counts, unless it is far ahead. A negative
// number below is one of refused evidence.
func TestNumbersOfAMandate(t *testing.T) {
	const missing, late = "numbers are missing", "a number comes again or late"
	for name, tc := range map[string]struct {
		numbers []int64
		want    []string
	}{
		"in a row":                   {[]int64{1, 2, 3}, nil},
		"one is missing":             {[]int64{1, 3, 4}, []string{missing}},
		"one is refused":             {[]int64{1, -2, 3}, nil},
		"a refused one overtakes":    {[]int64{1, -3, 2, 4}, []string{missing, late}},
		"a refused one comes late":   {[]int64{1, 3, -2, 4}, []string{missing}},
		"a refused one is far ahead": {[]int64{1, -100_000, 2, 3}, nil},
		"the first is refused":       {[]int64{-1, 2}, nil},
		"the first is far ahead":     {[]int64{-5, 1, 2}, nil},
	} {
		ms, found := NewMandates(), &texts{}
		ms.Configure(found, 0)
		for _, n := range tc.numbers {
			f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1"), Event: &aump.Evidence{Sequence: max(n, -n), Ref: aump.Ref{ID: "m1"}}}
			if n < 0 {
				ms.NoteNumber(f)
			} else {
				ms.CheckEvidence(f)
			}
		}
		if !slices.Equal(found.said, tc.want) {
			t.Errorf("%s: %q, want %q", name, found.said, tc.want)
		}
	}
}
