package auditor

import (
	"bytes"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

func TestQuarantineHoldsEverythingOnce(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	huge := strings.Repeat("x", 8<<20-256) // as large as the server takes
	n.Publish(servicetest.Runtime, garbage("{1"), garbage("{2"))
	n.Publish(servicetest.Runtime, garbage(huge[:8<<20-1024]))
	n.Publish(servicetest.Runtime, session(t, "s1")[0])
	a := standing(t, flags(n, dsn, 100))
	prepare(t, a, n.Log()) // dies with everything in quarantine and nothing stored
	a.quarantine.ambiguous, a.quarantine.last = true, 0
	prepare(t, a, n.Log()) // as after a lost acknowledgement
	audited(t, n, flags(n, dsn, 1))
	holds(t, n, dsn)
	var bodies []string
	for seq := uint64(1); ; seq++ {
		m := n.At(streams.StreamQuarantine, seq)
		if m == nil {
			break
		}
		if part := m.HeaderValue(headerQuarantinePart); strings.HasPrefix(part, "2/") {
			bodies[len(bodies)-1] += string(m.Body)
			continue
		}
		if m.Subject != "gov.quarantine.acme" || m.HeaderValue(headerQuarantineReason) == "" || m.HeaderValue(headerQuarantineShard) != a.shard {
			t.Errorf("%s %v", m.Subject, m.Header)
		}
		bodies = append(bodies, string(m.Body))
	}
	if len(bodies) != 3 || bodies[0] != "{1" || bodies[1] != "{2" || bodies[2] != huge[:8<<20-1024] {
		t.Errorf("%d bodies in quarantine", len(bodies))
	}
}

func TestSessionKeysAreMadeOnceAndWrapped(t *testing.T) {
	n, dsn := servicetest.Start(t, streams.Shard{}), database(t)
	a, b := standing(t, flags(n, dsn, 1)), standing(t, flags(n, dsn, 1))
	a.records.keys.setContext(t.Context())
	b.records.keys.setContext(t.Context())
	first, err := a.records.keys.SessionSecret("acme", "s1")
	servicetest.OK(t, err)
	second, err := b.records.keys.SessionSecret("acme", "s1")
	servicetest.OK(t, err)
	other, err := b.records.keys.SessionSecret("acme", "s2")
	servicetest.OK(t, err)
	if !bytes.Equal(first, second) || bytes.Equal(first, other) {
		t.Error("keys of a session differ, or two sessions share one")
	}
	stored := n.LastPublished("KV_" + streams.BucketSessionSecrets)
	if stored != nil && (bytes.Contains(stored.Body, other) || strings.Contains(stored.Subject, "s2")) {
		t.Error("the bucket gives the key or the session away")
	}
}
