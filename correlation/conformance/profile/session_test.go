package profile

import (
	"fmt"
	"testing"
)

// TestSessionIsBounded: what a session remembers is bounded, and it says what it forgot.
func TestSessionIsBounded(t *testing.T) {
	o := NewSessions().Of(KeyOf("courier", "s1"))
	for i := range MaxCalls {
		o.AddEvent(fmt.Sprint(i), Facets{Event})
		o.AddCall(fmt.Sprint(i), Call{})
	}
	if o.IsPartial() {
		t.Error("partial at its bounds")
	}
	o.AddEvent("more", Facets{Event})
	o.AddCall("more", Call{})
	if !o.IsPartial() || len(o.calls) != MaxCalls || len(o.ids) != MaxIDs || o.HasID("more") {
		t.Errorf("partial %v, %d calls, %d ids", o.IsPartial(), len(o.calls), len(o.ids))
	}
}

// TestTokensAreBounded: what is remembered of the tokens of a tenant has a bound.
func TestTokensAreBounded(t *testing.T) {
	s, at, none := NewSessions(), KeyOf("courier", "s1"), KeyOf("", "")
	s.NoteToken("", at)
	for i := range maxTokens + 1 {
		s.NoteToken(fmt.Sprint(i), at)
	}
	if s.OfToken("0", none) != at || s.OfToken(fmt.Sprint(maxTokens), none) != none || s.OfToken("", none) != none {
		t.Errorf("%d tokens", len(s.tokens))
	}
}

// TestOpenUntilTheEnd: the end of a session closes what is open in it, and answers nothing.
func TestOpenUntilTheEnd(t *testing.T) {
	const open, unanswered Facet = "open", "unanswered"
	o := NewSessions().Of(KeyOf("courier", "s1"))
	o.AddOpen(open, 1)
	o.AddUnanswered(unanswered, 2)
	o.AddUnanswered(unanswered, -1)
	o.AddCall("c1", Call{Announced: true, NeedsVerdict: true})
	show := func() string {
		counts := map[Facet]uint64{}
		o.AddOpenCounts(counts)
		return fmt.Sprint(counts[open], counts[unanswered], counts[OpenCalls], counts[CallsWithoutVerdict])
	}
	if got := show(); got != "1 1 1 1" {
		t.Error(got)
	}
	o.End()
	if got := show(); got != "0 1 0 1" {
		t.Errorf("after the end: %s", got)
	}
}
