package correlation

import (
	"testing"

	"github.com/countersign-dev/countersign/events"
)

// What a retired key signs is a forged record, also when its key record is
// published again; what it signed before stays a verdict. A retirement that the
// checkpoint key did not sign retires nothing and is a finding itself.
func TestRetiredKey(t *testing.T) {
	for name, c := range map[string]struct {
		vouch         string
		before, after int // forged records, up to the retirement and behind it
	}{
		"retired":               {"ok", 0, 1},
		"retired by a stranger": {"no", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.opts.RetireVoucher = func(k events.KeyRetirement) bool { return k.Vouch == "ok" && k.KeyID == signer.ID }
			l.admit(pre(1), "d1", events.Deny)
			b, err := events.Encode(events.KeyRetirement{KeyID: signer.ID, Use: "receipt", RetiredAt: events.At(epoch), Vouch: c.vouch})
			if err != nil {
				t.Fatal(err)
			}
			l.put(space.Control("GOV", events.ControlKeyRetired), nil, b)
			l.key(signer, "ok")
			if got := l.forgeries(); got != c.before {
				t.Errorf("%d forged records before", got)
			}
			l.admit(set(pre(2), "metadata.tool_call_id", "c2"), "d2", events.Deny)
			if got := l.forgeries(); got != c.after {
				t.Errorf("%d forged records after", got)
			}
		})
	}
}

func (l *ledger) forgeries() (n int) {
	for _, f := range l.run().findings {
		if f.Rule == ruleForged.Name {
			n++
		}
	}
	return n
}
