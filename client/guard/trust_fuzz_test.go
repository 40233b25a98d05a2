package guard_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
)

// FuzzTrust: a guard takes no key record, and no retirement, but those that the
// checkpoint key vouches for, whatever comes.
func FuzzTrust(f *testing.F) {
	honest := newIssuer(f, 1)
	record, retirement := honest.record(f), honest.retirement(f)
	other := newIssuer(f, 2)
	f.Add(record)
	f.Add(retirement)
	f.Add(bytes.Replace(record, []byte(honest.key.ID), []byte(other.key.ID), 1))
	f.Add(bytes.Replace(record, []byte(`"receipt"`), []byte(`"receipt "`), 1))
	f.Add(bytes.Replace(retirement, []byte(honest.key.ID), []byte(other.key.ID), 1))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"kid":"x","use":"receipt","alg":"EdDSA","public_key":"","created_at":"","vouch":""}`))
	vouched, err := events.DecodeRecord[events.KeyRecord](record)
	ok(f, err)
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := guard.New(guard.Options{Tenant: "acme", PublicKey: honest.publicKey})
		ok(t, err)
		if g.Trust(b) != nil {
			return
		}
		var said events.KeyRecord
		if json.Unmarshal(b, &said) != nil || said.KeyID != vouched.KeyID || said.PublicKey != "" && said.VouchText() != vouched.VouchText() {
			t.Fatalf("took %s", b)
		}
	})
}
