package events

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPolicySetRoundTrip(t *testing.T) {
	s := PolicySet{Author: "alice", Message: "why not", PushedAt: At(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)), RollbackTo: 3,
		Documents: []PolicyDocument{{Name: "a.yaml", Text: "x: 1\n# <é>\n"}}}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const golden = `{"author":"alice","documents":[{"name":"a.yaml","text":"x: 1\n# <é>\n"}],"message":"why not","pushed_at":"2026-11-20T09:00:00.000000000Z","rollback_to":3,"v":1}`
	if string(b) != golden {
		t.Errorf("%s", b)
	}
	got, err := DecodePolicySet(b)
	if err != nil || got.Author != "alice" || got.Documents[0] != s.Documents[0] || got.RollbackTo != 3 || !got.PushedAt.Equal(s.PushedAt.Time) {
		t.Errorf("%+v, %v", got, err)
	}
	if b, err := (PolicySet{}).Encode(); err != nil || string(b) != `{"documents":[],"v":1}` {
		t.Errorf("%s, %v", b, err)
	}
}

func TestPolicySetLimits(t *testing.T) {
	large := PolicySet{Documents: []PolicyDocument{{Name: "a", Text: strings.Repeat("x", MaxPolicySet)}}}
	if _, err := large.Encode(); !errors.Is(err, ErrPolicySetTooLarge) || !strings.Contains(err.Error(), "bytes in 1 files") {
		t.Errorf("%v", err)
	}
	for name, s := range map[string]PolicySet{
		"text":    {Documents: []PolicyDocument{{Name: "a", Text: "\xff"}}},
		"name":    {Documents: []PolicyDocument{{Name: "\xff"}}},
		"author":  {Author: strings.Repeat("é", MaxPolicySetAuthor+1)},
		"message": {Message: "\xff"},
	} {
		if _, err := s.Encode(); err == nil {
			t.Errorf("%s passes", name)
		}
	}
}

// The record of a change stays readable for the log's readers, whatever is in it.
func TestPolicyChangeIsBounded(t *testing.T) {
	text := strings.Repeat("\n", MaxPolicySet/2) // two bytes each in JSON
	c := PolicyChange{Revision: 1, Policies: []PolicyRef{}, Documents: []PolicyDocument{{Name: "a", Text: text}}}
	if got := c.WithinLimits(); got.Omitted || len(got.Documents) != 1 {
		t.Error("omitted what fits")
	}
	c.Documents[0].Text += text
	got := c.WithinLimits()
	if b, err := Encode(got); err != nil || len(b) > maxPolicyChange || !got.Omitted || got.Documents != nil || got.Revision != 1 {
		t.Errorf("%d bytes, omitted %t, %v", len(b), got.Omitted, err)
	}
}

func FuzzDecodePolicySet(f *testing.F) {
	for _, s := range []string{`{"documents":[],"v":1}`, `{"documents":[{"name":"a","text":"b"}],"v":1,"author":"x"}`, `{"v":2}`, `{"documents":null,"v":1}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodePolicySet(b)
		if err != nil {
			return
		}
		if again, err := s.Encode(); err == nil {
			if _, err := DecodePolicySet(again); err != nil {
				t.Errorf("%s becomes %s: %v", b, again, err)
			}
		}
	})
}
