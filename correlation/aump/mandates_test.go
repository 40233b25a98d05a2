package aump

import (
	"strconv"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
)

// TestMandatesOfASession: what decisions say of a mandate is kept by tenant, and a mandate
// beyond the bound is noted without being kept.
func TestMandatesOfASession(t *testing.T) {
	ms, revokedAt := NewMandates(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f := &fact.Fact{Origin: fact.OriginOf("acme", "rt1", "s1")}
	for i := range 3 * maxMandateTexts {
		ms.RecordUse(f, &events.MandateRef{ID: "m" + strconv.Itoa(i), Hash: "sha256:" + strconv.Itoa(i)})
	}
	ids, _ := ms.ofSession.Get(f.Key)
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
