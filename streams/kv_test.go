package streams

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// An operator reads the past of a bucket without a consumer, which it may not
// have.
func TestKVHistory(t *testing.T) {
	f := start(t)
	js := f.js(f.conn("operator"))
	kv, err := js.KeyValue(ctx(t), BucketPolicies)
	ok(t, err)
	if e, err := KVLast(ctx(t), js, BucketPolicies, "a"); err != nil || e != nil {
		t.Errorf("a key that never was: %+v, %v", e, err)
	}
	for _, step := range []string{"a1", "b1", "a2", "-b", "a3", "c.d1", "-a", "a4"} {
		if step[0] == '-' {
			ok(t, kv.Delete(ctx(t), step[1:]))
			continue
		}
		_, err := kv.Put(ctx(t), step[:len(step)-1], []byte(step))
		ok(t, err)
	}
	history, err := KVHistory(ctx(t), js, BucketPolicies, "a")
	ok(t, err)
	got := ""
	for _, e := range history {
		got += fmt.Sprintf("%d%s%t ", e.Revision, e.Value, e.Deleted)
		if e.Created.IsZero() || e.Key != "a" {
			t.Errorf("%+v", e)
		}
	}
	if got != "1a1false 3a2false 5a3false 7true 8a4false " {
		t.Error(got)
	}
	for key, want := range map[string]string{"a": "8 a4 false", "b": "4  true", "c.d": "6 c.d1 false"} {
		e, err := KVLast(ctx(t), js, BucketPolicies, key)
		ok(t, err)
		if got := fmt.Sprintf("%d %s %t", e.Revision, e.Value, e.Deleted); got != want || e.Key != key {
			t.Errorf("%s: %s", key, got)
		}
	}
	for revision, want := range map[uint64]string{0: "", 1: "a1 ", 3: "a2 b1 ", 4: "a2 ", 6: "a3 c.d1 ", 7: "c.d1 ", 99: "a4 c.d1 "} {
		list, err := KVAsOf(ctx(t), js, BucketPolicies, revision)
		ok(t, err)
		got := ""
		for _, e := range list {
			got += string(e.Value) + " "
		}
		if got != want {
			t.Errorf("as of %d: %s", revision, got)
		}
	}
}

func TestNextBySubject(t *testing.T) {
	f := start(t)
	js := f.js(f.conn("operator"))
	ok(t, StoreAll(ctx(t), f.conn("admitter"), []Msg{event("runtime", 1), event("runtime", 2), event("runtime", 3)}))
	for from, want := range map[uint64]uint64{0: 1, 1: 1, 2: 2, 3: 3, 4: 0} {
		m, err := NextBySubject(ctx(t), js, DefaultShard, "gov.events.>", from)
		ok(t, err)
		if (m == nil) != (want == 0) || m != nil && m.Seq != want {
			t.Errorf("from %d: %+v", from, m)
		}
	}
	if m, err := NextBySubject(ctx(t), js, DefaultShard, "gov.decisions.>", 1); err != nil || m != nil {
		t.Errorf("another subject: %+v, %v", m, err)
	}
}

// slowNetwork delays what a client sends by 10 ms.
type slowNetwork struct{ net.Conn }

func (slowNetwork) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	return slowNetwork{c}, err
}

func (c slowNetwork) Write(b []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	return c.Conn.Write(b)
}

// A bucket with keys of many tenants is read within the services' time-outs also on a slow network: one
// key after the other would take 6 s.
func TestManyKeysOnASlowNetwork(t *testing.T) {
	f := start(t)
	kv, err := f.js(f.conn("operator")).KeyValue(ctx(t), BucketRules)
	ok(t, err)
	for i := range 600 {
		_, err := kv.Put(ctx(t), fmt.Sprintf("k%03d", i), []byte("v"))
		ok(t, err)
	}
	ok(t, kv.Delete(ctx(t), "k001"))
	nc, err := nats.Connect(f.srv.ClientURL(), nats.UserInfo("correlator", "pw-correlator"), nats.CustomInboxPrefix("_INBOX_correlator"), nats.SetCustomDialer(slowNetwork{}))
	ok(t, err)
	defer nc.Close()
	bounded, cancel := context.WithTimeout(ctx(t), 4*time.Second)
	defer cancel()
	list, err := KVNewest(bounded, f.js(nc), BucketRules, nil)
	if err != nil || len(list) != 600 || list[0].Key != "k000" || !list[1].Deleted || list[599].Key != "k599" {
		t.Errorf("%d keys, %v", len(list), err)
	}
}

// TestKVPutUnless: a write that depends on another key is decided by the server,
// also where that key was deleted since.
func TestKVPutUnless(t *testing.T) {
	f := start(t)
	nc := f.conn("admitter")
	kv, err := OpenBucket(ctx(t), f.js(nc), BucketKeys)
	ok(t, err)
	for range 2 { // the key itself may be there
		ok(t, KVPutUnless(ctx(t), nc, BucketKeys, "k1", []byte("v"), "k1.retired"))
	}
	_, err = kv.Put(ctx(t), "k1.retired", []byte("r"))
	ok(t, err)
	if err := KVPutUnless(ctx(t), nc, BucketKeys, "k1", []byte("w"), "k1.retired"); !errors.Is(err, ErrFenced) {
		t.Errorf("%v", err)
	}
	ok(t, KVPutUnless(ctx(t), nc, BucketKeys, "k2", []byte("v"), "k2.retired"))
	ok(t, kv.Delete(ctx(t), "k1.retired"))
	if err := KVPutUnless(ctx(t), nc, BucketKeys, "k1", []byte("w"), "k1.retired"); !errors.Is(err, ErrFenced) {
		t.Errorf("%v", err)
	}
	if e, err := kv.Get(ctx(t), "k1"); err != nil || string(e.Value()) != "v" {
		t.Errorf("%v", err)
	}
}

// TestKVConflict: of two writers of a key the later one is told so by every conditional write, also
// by a bucket with replicas, where the server has another code for it.
func TestKVConflict(t *testing.T) {
	f := start(t)
	kv, err := OpenBucket(ctx(t), f.js(f.conn("admitter")), BucketSpend)
	ok(t, err)
	revision, err := kv.Create(ctx(t), "k", []byte("1"))
	ok(t, err)
	_, created := kv.Create(ctx(t), "k", []byte("2"))
	_, updated := kv.Update(ctx(t), "k", []byte("2"), revision+1)
	_, unread := kv.Get(ctx(t), "other")
	_, invalid := kv.Update(ctx(t), "", nil, 1)
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"created twice":          {created, true},
		"changed meanwhile":      {updated, true},
		"deleted after a change": {kv.Delete(ctx(t), "k", jetstream.LastRevision(revision+1)), true},
		"with replicas":          {fmt.Errorf("changing: %w", &jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeStreamWrongLastSequenceConstant}), true},
		"another refusal":        {&jetstream.APIError{Code: 400, ErrorCode: jetstream.JSErrCodeBadRequest}, false},
		"no such key":            {unread, false},
		"no valid key":           {invalid, false},
		"nothing":                {nil, false},
	} {
		if got := IsKVConflict(tc.err); got != tc.want {
			t.Errorf("%s: %v, %v", name, got, tc.err)
		}
	}
}
