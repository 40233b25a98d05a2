package sessionsecrets_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

func open(t *testing.T, n *servicetest.NATS, user string) *sessionsecrets.Store {
	t.Helper()
	master, err := keys.Master(n.Keys)
	servicetest.OK(t, err)
	s, err := sessionsecrets.Open(t.Context(), n.JS(user), master)
	servicetest.OK(t, err)
	return s
}

// Of all services that need a session's key at the same moment one makes it, and
// all have the same.
func TestOneKeyForAll(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	stores := []*sessionsecrets.Store{open(t, n, "admitter"), open(t, n, "correlator"), open(t, n, "auditor")}
	name := sessionsecrets.SessionOfName("acme", "s1")
	if _, there, err := stores[0].Lookup(t.Context(), name); there || err != nil {
		t.Fatalf("a key that nobody made: %v", err)
	}
	got := make([]sessionsecrets.Secret, 24)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			var err error
			got[i], err = stores[i%3].GetOrCreate(t.Context(), name)
			servicetest.OK(t, err)
		})
	}
	all.Wait()
	for _, k := range got {
		if len(k.Raw) != 32 || !bytes.Equal(k.Raw, got[0].Raw) || k.Digests.Form() != got[0].Digests.Form() {
			t.Fatal("keys of one session differ")
		}
	}
	st, err := streams.StreamState(t.Context(), n.JS("auditor"), "KV_"+streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	if st.LastSeq != 2 { // the first is the check of the master key
		t.Errorf("%d revisions of one key", st.LastSeq)
	}
	other, err := stores[0].GetOrCreate(t.Context(), sessionsecrets.SessionOfName("globex", "s1"))
	servicetest.OK(t, err)
	if bytes.Equal(other.Raw, got[0].Raw) {
		t.Error("two tenants share a key")
	}
	if k, held := stores[1].Cached(name); !held || !bytes.Equal(k.Raw, got[0].Raw) {
		t.Error("it is not in memory")
	}
	stores[1].Forget(name)
	if _, held := stores[1].Cached(name); held {
		t.Error("it is not forgotten")
	}
	if k, there, err := stores[1].Lookup(t.Context(), name); err != nil || !there || !bytes.Equal(k.Raw, got[0].Raw) {
		t.Errorf("it is not found again: %v", err)
	}
}

// TestAnotherMasterKeyIsRefused: the first service of a log says which master key is the log's, and
// no reader does. A store that is open refuses another log's keys once it has forgotten its own.
func TestAnotherMasterKeyIsRefused(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	other, err := keys.Master(n.KeysWithAnother(keys.MasterFile))
	servicetest.OK(t, err)
	_, err = sessionsecrets.OpenReader(t.Context(), n.JS("correlator"), other)
	servicetest.OK(t, err)
	s := open(t, n, "correlator")
	if _, err := sessionsecrets.Open(t.Context(), n.JS("admitter"), other); !errors.Is(err, sessionsecrets.ErrOtherMaster) {
		t.Errorf("%v", err)
	}
	_, err = streams.Erase(t.Context(), n.Conn("custodian"), "KV_"+streams.BucketSessionSecrets, 1)
	servicetest.OK(t, err)
	_, err = sessionsecrets.Open(t.Context(), n.JS("admitter"), other)
	servicetest.OK(t, err)
	s.ForgetAll()
	if _, err := s.GetOrCreate(t.Context(), sessionsecrets.SessionOfName("acme", "s1")); !errors.Is(err, sessionsecrets.ErrOtherMaster) {
		t.Errorf("%v", err)
	}
}

// TestUnopenedKeyIsSubstituted: for a key that does not open, the stores that go on have the same
// substitute, and say of which session. Other sessions are not touched, and a store that does not
// substitute has an error.
func TestUnopenedKeyIsSubstituted(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	damaged, whole := sessionsecrets.SessionOfName("acme", "s1"), sessionsecrets.SessionOfName("acme", "s2")
	bucket, err := n.JS("auditor").KeyValue(t.Context(), streams.BucketSessionSecrets)
	servicetest.OK(t, err)
	_, err = bucket.Put(t.Context(), sessionsecrets.BucketKey(damaged), []byte("no key of ours"))
	servicetest.OK(t, err)
	var got []sessionsecrets.Secret
	for _, user := range []string{"correlator", "auditor"} {
		s := open(t, n, user)
		var reported error
		s.SubstituteUnopened(func(err error) { reported = err })
		_, err := s.GetOrCreate(t.Context(), whole)
		servicetest.OK(t, err)
		if reported != nil {
			t.Errorf("%v", reported)
		}
		secret, err := s.GetOrCreate(t.Context(), damaged)
		servicetest.OK(t, err)
		if reported == nil || !strings.Contains(reported.Error(), `session "s1" of tenant "acme"`) {
			t.Errorf("%v", reported)
		}
		got = append(got, secret)
	}
	if len(got[0].Raw) != 32 || !bytes.Equal(got[0].Raw, got[1].Raw) {
		t.Error("the substitutes differ")
	}
	if _, err := open(t, n, "admitter").GetOrCreate(t.Context(), damaged); !errors.Is(err, evidence.ErrUnwrap) {
		t.Errorf("%v", err)
	}
}

// A bucket that does not answer is an error of its own, and no call waits for ever.
func TestUnreachableBucket(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	s := open(t, n, "admitter")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	n.Stop()
	if _, err := s.GetOrCreate(ctx, sessionsecrets.SessionOfName("acme", "s1")); !errors.Is(err, sessionsecrets.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// A session has one name, from a body and from a subject.
func TestNames(t *testing.T) {
	for _, name := range []string{"", "s1", "ä b", "~", "~h", strings.Repeat("s", 32), strings.Repeat("s", 33), strings.Repeat("s", 65), strings.Repeat("ä", 40), "a\xff"} {
		p, err := subject.Space{}.Parse(subject.Space{}.Decision("acme", "allow", name))
		servicetest.OK(t, err)
		if body, subj := sessionsecrets.SessionOfName("acme", name), sessionsecrets.SessionOfSubject(p.Tenant, p.Session); body != subj {
			t.Errorf("%.10q: %v from a body, %v from a subject", name, body, subj)
		}
	}
}
