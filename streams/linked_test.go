package streams

import (
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

const linkedSubject = "gov.control.GOV.policy"

// storeUnlinked stores a record with headers that its writer chose.
func storeUnlinked(t *testing.T, js jetstream.JetStream, header map[string][]string) {
	t.Helper()
	s, err := newSender(js.Conn(), DefaultShard, publishTimeout)
	ok(t, err)
	defer s.close()
	ok(t, s.publishEach(ctx(t), []Msg{{Subject: linkedSubject, Body: []byte("{}")}}, header)[0].err)
}

func linkedFrom(t *testing.T, js jetstream.JetStream, from uint64) (seqs []uint64, err error) {
	t.Helper()
	for m, err := range EachLinked(ctx(t), js, DefaultShard, linkedSubject, from) {
		if err != nil {
			return seqs, err
		}
		if m.Subject != linkedSubject || string(m.Body) != "{}" {
			t.Errorf("%s %s at %d", m.Subject, m.Body, m.Seq)
		}
		seqs = append(seqs, m.Seq)
	}
	return seqs, nil
}

// TestEachLinked: records are found from each place on, also those behind which are records without a link, or with
// a condition on another subject. One that is gone is an error, and not left out.
func TestEachLinked(t *testing.T) {
	f := start(t)
	js := f.js(f.conn("admitter"))
	check := func(want ...uint64) {
		t.Helper()
		for i := range want {
			for _, from := range []uint64{want[i], want[i] - 1} {
				if got, err := linkedFrom(t, js, from); err != nil || !slices.Equal(got, want[i:]) {
					t.Errorf("from %d: %d, %v; want %d", from, got, err, want[i:])
				}
			}
		}
		if got, err := linkedFrom(t, js, f.state().LastSeq+1); err != nil || len(got) > 0 {
			t.Errorf("behind the last: %d, %v", got, err)
		}
	}
	add := func(store func()) {
		t.Helper()
		ok(t, StoreAll(ctx(t), js.Conn(), events64("runtime", 1)))
		store()
	}
	linked := func() { ok(t, StoreLinked(ctx(t), js, DefaultShard, Msg{Subject: linkedSubject, Body: []byte("{}")})) }
	check()
	for range 3 {
		add(linked)
	}
	check(2, 4, 6)
	if m, err := MessageAt(ctx(t), js, DefaultShard, 6); err != nil || m.HeaderValue(headerExpectLast) != "4" {
		t.Errorf("the link of the third record: %v, %v", m, err)
	}
	add(func() { storeUnlinked(t, js, nil) })
	add(linked)
	check(2, 4, 6, 8, 10)
	add(func() {
		storeUnlinked(t, js, map[string][]string{headerExpectLast: {"0"}, headerExpectOn: {"gov.control.GOV.rules"}})
	})
	add(linked)
	check(2, 4, 6, 8, 10, 12, 14)
	_, err := Erase(ctx(t), f.conn("custodian"), DefaultShard, 14)
	ok(t, err)
	check(2, 4, 6, 8, 10, 12)
	for range 2 {
		linked()
	}
	_, err = Erase(ctx(t), f.conn("custodian"), DefaultShard, 15)
	ok(t, err)
	if got, err := linkedFrom(t, js, 1); err == nil {
		t.Errorf("a record was lost: %d", got)
	}
	if got, err := linkedFrom(t, js, 16); err != nil || !slices.Equal(got, []uint64{16}) {
		t.Errorf("behind the one that was lost: %d, %v", got, err)
	}
}

// TestStoreLinkedConcurrently: two writers leave no record out of the links.
func TestStoreLinkedConcurrently(t *testing.T) {
	f := start(t)
	var wg sync.WaitGroup
	const writers, each = 4, 5
	for range writers {
		js := f.js(f.conn("admitter"))
		wg.Go(func() {
			for range each {
				if err := StoreLinked(ctx(t), js, DefaultShard, Msg{Subject: linkedSubject, Body: []byte("{}")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	before := uint64(0)
	for _, m := range f.readAll() {
		if got, linked := linkOf(&m); !linked || got != before {
			t.Errorf("record %d names %d as the one before, %t", m.Seq, got, linked)
		}
		before = m.Seq
	}
	if before != writers*each {
		t.Errorf("the last of %d records is %d", writers*each, before)
	}
}
