package events

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// An erasure record explains a gap in the log only if all of it is well-formed.
func TestErasureCheck(t *testing.T) {
	valid := Erasure{ErasureID: "e1", Shard: "GOV", State: ErasureBegun, Part: 1, Parts: 2, Sequences: []Span{{2, 4}, {7, 7}}, Messages: 4}
	if err := valid.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Erasure){
		"no id": func(e *Erasure) { e.ErasureID = "" }, "no shard": func(e *Erasure) { e.Shard = "" }, "no state": func(e *Erasure) { e.State = "x" },
		"part 0": func(e *Erasure) { e.Part = 0 }, "part 3 of 2": func(e *Erasure) { e.Part = 3 },
		"backwards": func(e *Erasure) { e.Sequences = []Span{{4, 2}} }, "overlapping": func(e *Erasure) { e.Sequences = []Span{{2, 4}, {4, 5}} },
		"out of order": func(e *Erasure) { e.Sequences = []Span{{7, 7}, {2, 4}} }, "sequence 0": func(e *Erasure) { e.Sequences = []Span{{0, 3}} },
		"another count": func(e *Erasure) { e.Messages = 5 },
	} {
		e := valid
		change(&e)
		if e.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	for seq, want := range map[uint64]bool{1: false, 2: true, 4: true, 5: false, 7: true, 8: false} {
		if valid.Covers(seq) != want {
			t.Errorf("sequence %d is covered: %v", seq, !want)
		}
	}
}

func TestExpiryCheck(t *testing.T) {
	session := func(spans ...Span) []ExpiredSession {
		return []ExpiredSession{{Session: "s", Index: 1, Sequences: spans}}
	}
	valid := Expiry{ExpiryID: "e1", Shard: "GOV", State: ErasureBegun, Part: 1, Parts: 1, Tenant: "acme", Policy: "p", Sessions: session(Span{2, 4}, Span{9, 9}), Records: 4}
	if err := valid.Check(); err != nil || valid.LastSequence() != 9 {
		t.Fatal(err, valid.LastSequence())
	}
	done := valid
	done.State, done.Sessions = ErasureDone, nil
	if err := done.Check(); err != nil || done.LastSequence() != 0 {
		t.Error(err, done.LastSequence())
	}
	for name, change := range map[string]func(*Expiry){
		"no id": func(e *Expiry) { e.ExpiryID = "" }, "no shard": func(e *Expiry) { e.Shard = "" }, "no tenant": func(e *Expiry) { e.Tenant = "" }, "no policy": func(e *Expiry) { e.Policy = "" },
		"part 2 of 1": func(e *Expiry) { e.Part = 2 }, "no state": func(e *Expiry) { e.State = "" }, "another count": func(e *Expiry) { e.Records = 3 },
		"no session": func(e *Expiry) { e.Sessions = []ExpiredSession{{Index: 1, Sequences: []Span{{1, 4}}}} },
		"no index":   func(e *Expiry) { e.Sessions = []ExpiredSession{{Session: "s", Sequences: []Span{{1, 4}}}} },
		"no records": func(e *Expiry) { e.Sessions = session() }, "overlapping": func(e *Expiry) { e.Sessions = session(Span{1, 3}, Span{3, 3}) },
	} {
		e := valid
		change(&e)
		if e.Check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// The text that the checkpoint key signs covers all of a record but its signature, and is another one for
// each kind of record.
func TestVouchTexts(t *testing.T) {
	erasure, expiry := Erasure{ErasureID: "x", Reason: "r"}, Expiry{ExpiryID: "x"}
	text := func(s string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	base := text(erasure.VouchText())
	signed, changed := erasure, erasure
	signed.Vouch, changed.Reason = "note", "another"
	if text(signed.VouchText()) != base || text(changed.VouchText()) == base {
		t.Error("the text of an erasure does not cover what it says")
	}
	seen := map[string]bool{}
	for _, s := range []string{base, text(expiry.VouchText()), KeyRecord{KeyID: "x"}.VouchText(), KeyRetirement{KeyID: "x", RetiredAt: At(time.Unix(1, 0))}.VouchText()} {
		first, _, _ := strings.Cut(s, "\n")
		if seen[first] || !strings.HasPrefix(first, "countersign/") || !strings.HasSuffix(s, "\n") {
			t.Errorf("%q begins like another", s)
		}
		seen[first] = true
	}
}

func TestFollowRequestErrors(t *testing.T) {
	for body, part := range map[string]string{
		"{" + strings.Repeat(" ", FollowMaxSize) + "}": "bytes", `{"x":1}`: "", `[]`: "",
		`{"workflow":"w","max":1}`: "excludes", `{"workflow":"w","after":1}`: "excludes", `{"workflow":"w","session":"s"}`: "excludes",
		fmt.Sprintf(`{"workflow":"%s"}`, strings.Repeat("w", maxWorkflowName+1)): "bytes",
	} {
		if _, err := DecodeFollowRequest([]byte(body)); !errors.Is(err, ErrFollow) || !strings.Contains(err.Error(), part) {
			t.Errorf("%.40s: %v", body, err)
		}
	}
	if r, err := DecodeFollowRequest([]byte(`{"workflow":"w","log":"GOV@1"}`)); err != nil || r.Workflow != "w" || r.Kinds != nil || r.Max != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if e := (&FollowError{Code: FollowBusy, Message: "wait"}); e.Error() != "wait (busy)" {
		t.Error(e)
	}
}

func TestExpiryPlaceOf(t *testing.T) {
	e := Expiry{Sessions: []ExpiredSession{{Session: "a", Index: 3, Sequences: []Span{{5, 6}, {9, 9}}}, {Session: "b", Index: 1, Sequences: []Span{{7, 8}}}, {Session: "a", Index: 9, Sequences: []Span{{20, 20}}}}}
	for seq, want := range map[uint64]string{4: " 0 false", 5: "a 3 true", 6: "a 4 true", 7: "b 1 true", 9: "a 5 true", 20: "a 9 true", 21: " 0 false"} {
		session, index, named := e.PlaceOf(seq)
		if got := fmt.Sprint(session, " ", index, " ", named); got != want {
			t.Errorf("record %d: %s, want %s", seq, got, want)
		}
	}
}
