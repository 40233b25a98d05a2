package erasures_test

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/erasures"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// The records of erasures explain what is missing, at the log's begin and within, also after they are done; then they
// are kept without their sequences.
func TestLog(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	js := n.JS("auditor")
	_, public, err := keys.Checkpoint(n.Keys)
	servicetest.OK(t, err)
	known, err := note.NewVerifier(public)
	servicetest.OK(t, err)
	record := func(id, state string, part, parts int, spans ...events.Span) {
		t.Helper()
		n.PublishErasure(events.Erasure{ErasureID: id, State: state, Part: part, Parts: parts, Sessions: []string{}, Sequences: spans})
	}
	for range 12 {
		n.Publish(servicetest.Runtime, streams.Msg{Subject: "gov.events.acme.rt1.agenthook.s1.PreToolUse", Body: []byte("{")})
	}
	l := &erasures.Log{JS: js, Stream: "GOV", Space: subject.Space{Prefix: "gov"}, Known: note.VerifierList(known)}
	kept := func() (list []int) {
		t.Helper()
		servicetest.OK(t, l.Load(t.Context()))
		for _, r := range l.Records() {
			list = append(list, len(r.Sequences))
		}
		return list
	}
	record("e1", events.ErasureBegun, 1, 2, events.Span{1, 2}, events.Span{5, 5})
	record("e2", events.ErasureBegun, 1, 1, events.Span{9, 10})
	if got := kept(); !slices.Equal(got, []int{2, 1}) {
		t.Errorf("the open erasures have %d sequences", got)
	}
	record("e1", events.ErasureBegun, 2, 2, events.Span{6, 7})
	record("e1", events.ErasureDone, 1, 1, events.Span{1, 2}, events.Span{5, 5})
	if got := kept(); !slices.Equal(got, []int{0, 1, 0, 0}) {
		t.Errorf("when one is done, they have %d sequences", got)
	}
	for _, seq := range []uint64{1, 2, 5, 6, 7, 9, 11} {
		_, err := streams.Erase(t.Context(), n.Conn("custodian"), "GOV", seq)
		servicetest.OK(t, err)
	}
	if erased, lost, err := l.Missing(t.Context(), 9); erased != 6 || !slices.Equal(lost, []uint64{11}) || err != nil {
		t.Errorf("%d erased, lost %d (%v)", erased, lost, err)
	}
	if gone, named, err := l.Progress(t.Context(), "acme"); gone != 1 || named != 2 || err != nil {
		t.Errorf("%d of %d messages of what is open are gone (%v)", gone, named, err)
	}
	if gone, named, err := l.Progress(t.Context(), "globex"); gone != 0 || named != 0 || err != nil {
		t.Errorf("%d of %d messages of another tenant (%v)", gone, named, err)
	}
	var gap *streams.GapError
	if err := l.Explain(t.Context(), 5, 7); err != nil {
		t.Error(err)
	}
	if err := l.Explain(t.Context(), 5, 9); !errors.As(err, &gap) || gap.Want != 8 {
		t.Errorf("a message that no record names: %v", err)
	}
	if !l.Covers(6) || l.Covers(8) {
		t.Error("it covers other sequences than the records name")
	}
}
