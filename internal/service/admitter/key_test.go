package admitter

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const retiredSubject = "gov.control.GOV.key_retired"

// checkSignatures demands that every decision in the log is signed by a key that
// was in the log before it, and counts them by key.
func checkSignatures(t *testing.T, log []events.LogMessage) map[string]int {
	t.Helper()
	known, by := signing.KeySet{}, map[string]int{}
	for _, m := range log {
		if m.Subject == keySubject {
			k, err := events.DecodeRecord[events.KeyRecord](m.Body)
			servicetest.OK(t, err)
			known[k.KeyID], err = signing.DecodePublic(k.PublicKey)
			servicetest.OK(t, err)
		}
		if token := m.HeaderValue(events.HeaderSignature); token != "" {
			kid, err := known.VerifyRecord(token, m.Body)
			if err != nil {
				t.Fatalf("the decision at %d: %v", m.Seq, err)
			}
			by[kid]++
		}
	}
	return by
}

// A key is rotated while requests come in: no restart, no request that is not
// answered, every signature by a key that was published before.
func TestKeyIsRotatedUnderLoad(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "mail.yaml", file(t, "policies/assistant/mail.yaml"))
	s := serve(t, n)
	body := file(t, "requests/pre-tool-use.json")
	first, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)

	load, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	for range 4 {
		nc := n.Conn(servicetest.Runtime)
		wg.Go(func() {
			for load.Err() == nil {
				reply, err := nc.Request("gov.admit.acme.agenthook", body, servicetest.Guard)
				if err != nil || reply.Header.Get(events.HeaderReceipt) == "" {
					t.Errorf("no receipt: %v", err)
					return
				}
				checkReceipt(t, n, reply.Header.Get(events.HeaderReceipt), reply.Header.Get(events.HeaderKey), body)
			}
		})
	}
	nc := n.Conn(servicetest.Runtime)
	if kid := keyOf(t, ask(t, nc, "gov.admit.acme.agenthook", body)); kid != first.ID { // whatever the load has had time for
		t.Errorf("signed by %s", kid)
	}
	kids := []string{first.ID}
	for range 2 {
		_, next, err := keys.Rotate(n.Keys, n.Keys, time.Now())
		servicetest.OK(t, err)
		servicetest.Eventually(t, "the new key signs", func() bool { return keyOf(t, ask(t, nc, "gov.admit.acme.agenthook", body)) == next.KeyID })
		kids = append(kids, next.KeyID)
	}
	stop()
	wg.Wait()
	by := checkSignatures(t, n.Log())
	for _, kid := range kids {
		if by[kid] == 0 {
			t.Errorf("no decision by key %s: %v", kid, by)
		}
		if _, err := bucket(t, n, "operator", streams.BucketKeys).Get(t.Context(), kid); err != nil {
			t.Errorf("key %s in the bucket: %v", kid, err)
		}
	}
	if len(by) != len(kids) || len(of(n.Log(), keySubject)) != len(kids) {
		t.Errorf("keys %v, %d records", by, len(of(n.Log(), keySubject)))
	}
	s.Running()
	if p := s.Health.Report().Problems; len(p) > 0 {
		t.Errorf("health: %v", p)
	}
}

func keyOf(t *testing.T, reply *nats.Msg) string {
	t.Helper()
	k, err := events.DecodeRecord[events.KeyRecord]([]byte(reply.Header.Get(events.HeaderKey)))
	servicetest.OK(t, err)
	return k.KeyID
}

// While the directory is half changed the key in force goes on, and says so.
func TestKeyWithoutARecordDoesNotSign(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := file(t, "requests/pre-tool-use.json")
	first := keyOf(t, ask(t, nc, "gov.admit.acme.agenthook", body))
	path := filepath.Join(n.Keys, keys.ReceiptFile)
	servicetest.OK(t, os.Rename(path, path+".old"))
	servicetest.OK(t, keys.Ensure(n.Keys, keys.ReceiptFile)) // a key without a record
	servicetest.Eventually(t, "the admitter complains", func() bool { return s.Health.Report().Problems["receipt_key"] != "" })
	if got := keyOf(t, ask(t, nc, "gov.admit.acme.agenthook", body)); got != first {
		t.Errorf("signed by %s", got)
	}
	_, err := keys.Vouch(n.Keys, time.Now())
	servicetest.OK(t, err)
	next, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)
	servicetest.Eventually(t, "the new key signs", func() bool { return keyOf(t, ask(t, nc, "gov.admit.acme.agenthook", body)) == next.ID })
	servicetest.Eventually(t, "it is content", func() bool { return s.Health.Report().Problems["receipt_key"] == "" })
	checkSignatures(t, n.Log())
}

// A retirement is published in the log and in the bucket, once. An admitter whose own key is
// retired stops, and does not start again.
func TestRetiredKey(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := serve(t, n)
	old, _, err := keys.Rotate(n.Keys, n.Keys, time.Now())
	servicetest.OK(t, err)
	want, err := keys.Retire(n.Keys, n.Keys, old.KeyID, false, time.Now())
	servicetest.OK(t, err)
	servicetest.Eventually(t, "the retirement is in the log", func() bool { return len(of(n.Log(), retiredSubject)) > 0 })
	got, err := events.DecodeRecord[events.KeyRetirement](of(n.Log(), retiredSubject)[0].Body)
	servicetest.OK(t, err)
	if got != want {
		t.Errorf("in the log: %+v", got)
	}
	servicetest.Eventually(t, "and in the bucket", func() bool {
		_, err := bucket(t, n, "operator", streams.BucketKeys).Get(t.Context(), keys.RetiredEntry(old.KeyID))
		return err == nil
	})
	s.Running()
	servicetest.OK(t, s.Stop())
	again := serve(t, n)
	servicetest.OK(t, again.Stop())
	if list := of(n.Log(), retiredSubject); len(list) != 1 {
		t.Errorf("%d retirements in the log", len(list))
	}

	// Another admitter's directory still has the old key.
	current, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)
	other := serve(t, n)
	_, err = bucket(t, n, "admitter", streams.BucketKeys).Put(t.Context(), keys.RetiredEntry(current.ID), []byte("{}"))
	servicetest.OK(t, err)
	servicetest.OK(t, os.Chtimes(filepath.Join(n.Keys, keys.ReceiptFile), time.Now(), time.Now())) // look now
	if err := other.Wait(); !errors.Is(err, errRetired) {
		t.Errorf("ended with %v", err)
	}
	if err := Run(t.Context(), flags(n), rigEnv()); !errors.Is(err, errRetired) {
		t.Errorf("started again: %v", err)
	}
}

// TestARetirementWaitsForDecisionsOfItsKey: a key is replaced and retired at once, while a decision that
// it signs is under way.
func TestARetirementWaitsForDecisionsOfItsKey(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := unstarted(t, n)
	s.keys.signer.Store(nil)
	js := n.JS("admitter")
	servicetest.OK(t, s.keys.publishKey(t.Context(), js))
	end := s.progress.beginDecision()
	old, next, err := keys.Rotate(n.Keys, n.Keys, time.Now())
	servicetest.OK(t, err)
	_, err = keys.Retire(n.Keys, n.Keys, old.KeyID, false, time.Now())
	servicetest.OK(t, err)
	rotated := make(chan error, 1)
	go func() { rotated <- s.keys.rotateKey(t.Context(), js) }()
	servicetest.Eventually(t, "the retirement waits", func() bool { return len(rotated) > 0 || strings.Contains(goroutines(), ").awaitUnused(") })
	if s.keys.current().key.ID != next.KeyID || len(of(n.Log(), retiredSubject)) > 0 {
		t.Error("the key is retired while it signs")
	}
	end()
	servicetest.OK(t, <-rotated)
	if list := of(n.Log(), retiredSubject); len(list) != 1 {
		t.Errorf("%d retirements in the log", len(list))
	}
	n.CheckLinked(events.ControlKey, events.ControlKeyRetired)
}

// TestRetiredKeyThatReadsDoNotShow: the bucket has heard of a retirement and a read
// does not find it, as with a server that lags (here the entry was deleted since).
// The write of the key is refused, so the admitter does not start.
func TestRetiredKeyThatReadsDoNotShow(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	current, err := keys.Receipt(n.Keys)
	servicetest.OK(t, err)
	kv := bucket(t, n, "admitter", streams.BucketKeys)
	_, err = kv.Put(t.Context(), keys.RetiredEntry(current.ID), []byte("{}"))
	servicetest.OK(t, err)
	servicetest.OK(t, kv.Delete(t.Context(), keys.RetiredEntry(current.ID)))
	if err := Run(t.Context(), flags(n), rigEnv()); !errors.Is(err, errRetired) {
		t.Errorf("%v", err)
	}
}
