package aump

import (
	"slices"
	"strconv"
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
	ms, revokedAt := NewMandates(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1")}
	for i := range 3 * maxMandateTexts {
		ms.RecordUse(f, &events.MandateRef{ID: "m" + strconv.Itoa(i), Hash: "sha256:" + strconv.Itoa(i)})
	}
	ids, _ := ms.ofSession.Get("acme", f.Key)
	if len(ids) != maxMandateTexts+1 {
		t.Errorf("a session has %d mandates", len(ids))
	}
	ms.ApplyChange(events.MandateChange{Changes: []events.MandateStep{{Tenant: "acme", MandateID: "m1", Change: "revoked"}}}, revokedAt)
	if md := ms.ensureMandate("acme", "m1"); !md.revoked.Equal(revokedAt) {
		t.Errorf("revoked at %v", md.revoked)
	}
	if md := ms.ensureMandate("other", "m1"); !md.revoked.IsZero() {
		t.Error("another tenant's mandate is revoked, too")
	}
}

// TestMandatesOutliveAFlood: evidence of another tenant, about as many mandates as a table holds,
// makes no finding about a tenant and loses none. Evidence of the tenant's own that invents
// mandates loses no revocation.
func TestMandatesOutliveAFlood(t *testing.T) {
	revokedAt := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for flooding, want := range map[string][]string{"acme": {""}, "globex": {"", "numbers are missing"}} {
		ms, found := NewMandates(), &texts{}
		ms.Configure(found, 0)
		evidence := func(tenant, mandate string, n int64) {
			f := &fact.Fact{Origin: fact.OriginOf(tenant, "rt1", "s1"), Event: &aump.Evidence{Sequence: n, Ref: aump.Ref{ID: mandate}, Result: aump.Allowed, CreatedAt: revokedAt.Add(time.Hour)}}
			ms.CheckEvidence(f)
		}
		ms.ApplyChange(events.MandateChange{Changes: []events.MandateStep{{Tenant: "globex", MandateID: "revoked", Change: "revoked"}}}, revokedAt)
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
	said []string
}

func (x *texts) ReportSessionFinding(_ *fact.Fact, _ fact.Origin, found *catalogue.Finding) string {
	x.said = append(x.said, found.Text)
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
