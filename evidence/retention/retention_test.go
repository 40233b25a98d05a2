package retention

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
)

var at = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

func note(id string) Note { return Note{ID: id, By: "dana", Reason: "because", At: events.At(at)} }

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func session(s string) Scope { return Scope{Session: s} }
func subject(s string) Scope { return Scope{Subject: s} }

// Who comes first wins, and every revision says what it changed.
func TestHoldAgainstOrder(t *testing.T) {
	state := must[State](t)
	for _, tt := range []struct {
		name string
		hold Scope
		want error
	}{
		{"the same session", session("s1"), ErrHeld},
		{"another session", session("s2"), nil},
		{"the tenant", Scope{}, ErrHeld},
		{"a subject, which only the evidence can tell", subject("s1"), nil},
	} {
		s := state(State{V: 1}.PlaceHold(Hold{tt.hold, note("h1")}))
		after, err := s.RequestErasure(Order{Scope: session("s1"), Note: note("o1")})
		if !errors.Is(err, tt.want) || tt.want == nil && (after.Last.What != "order" || after.Last.ID != "o1") {
			t.Errorf("%s: %v", tt.name, err)
		}
		if tt.want != nil && len(after.Orders) > 0 {
			t.Errorf("%s: refused and done", tt.name)
		}
	}
	s := state(State{V: 1}.RequestErasure(Order{Scope: session("s1"), Note: note("o1")}))
	s = state(s.PlaceHold(Hold{session("s1"), note("h1")}))
	if len(s.BegunErasures(s.Holds[0])) != 0 {
		t.Error("an order that has not begun overtakes nothing")
	}
	if h := s.BlockingHold([]string{"s1"}, "", nil); h == nil || h.ID != "h1" {
		t.Errorf("%v", h)
	}
	s = state(s.ReleaseHold(note("h1")))
	if s.Last.What != "release" || s.Last.Session != "s1" || len(s.Holds) != 0 {
		t.Errorf("%+v", s)
	}
	s = state(s.BeginOrder("o1", Planned{}, at))
	if _, err := s.RefuseOrder("o1", "too late", at); !errors.Is(err, ErrBegun) {
		t.Errorf("%v", err)
	}
	s = state(s.PlaceHold(Hold{session("s1"), note("h2")}))
	if list := s.BegunErasures(s.Holds[0]); len(list) != 1 {
		t.Errorf("%v", list)
	}
	s = state(s.FinishOrder("o1", Result{Messages: 3}, at))
	if o, ok := s.FindOrder("o1"); !ok || o.Status != Done || o.Result.Messages != 3 {
		t.Errorf("%+v", o)
	}
	for _, id := range []string{"o1", "o2"} {
		if _, err := s.BeginOrder(id, Planned{}, at); err == nil {
			t.Errorf("%s begins", id)
		}
	}
}

// A hold reaches an erasure by session, by subject, and by the data subjects that records
// name.
func TestBlocking(t *testing.T) {
	names := func(session, subject string) bool { return session == "s1" && subject == "dora" }
	for _, tt := range []struct {
		hold     Scope
		sessions []string
		subject  string
		want     bool
	}{
		{session("s1"), []string{"s0", "s1"}, "", true},
		{session("s2"), []string{"s0", "s1"}, "", false},
		{subject("dora"), []string{"s1"}, "", true},
		{subject("dora"), []string{"s2"}, "", false},
		{subject("dora"), nil, "dora", true},
		{subject("emil"), []string{"s1"}, "dora", false},
		{Scope{}, []string{"s9"}, "", true},
	} {
		s := must[State](t)(State{V: 1}.PlaceHold(Hold{tt.hold, note("h")}))
		if got := s.BlockingHold(tt.sessions, tt.subject, names) != nil; got != tt.want {
			t.Errorf("hold on %s, erasure of %v and %q: %v", tt.hold, tt.sessions, tt.subject, got)
		}
	}
}

func TestStateRefuses(t *testing.T) {
	long := strings.Repeat("x", 2000)
	for name, f := range map[string]func(State) (State, error){
		"a hold without a reason":  func(s State) (State, error) { n := note("h"); n.Reason = ""; return s.PlaceHold(Hold{Scope{}, n}) },
		"a hold by nobody":         func(s State) (State, error) { n := note("h"); n.By = ""; return s.PlaceHold(Hold{Scope{}, n}) },
		"a long reason":            func(s State) (State, error) { n := note("h"); n.Reason = long; return s.PlaceHold(Hold{Scope{}, n}) },
		"a long session":           func(s State) (State, error) { return s.PlaceHold(Hold{session(long), note("h")}) },
		"both":                     func(s State) (State, error) { return s.PlaceHold(Hold{Scope{Session: "a", Subject: "b"}, note("h")}) },
		"an erasure of the tenant": func(s State) (State, error) { return s.RequestErasure(Order{Note: note("o")}) },
		"a session and more sessions": func(s State) (State, error) {
			return s.RequestErasure(Order{Scope: session("a"), Sessions: []string{"b"}, Note: note("o")})
		},
		"more sessions than go at once": func(s State) (State, error) {
			return s.RequestErasure(Order{Sessions: make([]string, MaxBatch+1), Note: note("o")})
		},
		"an expiry of a session that somebody names": func(s State) (State, error) {
			return s.RequestErasure(Order{Scope: session("a"), Expire: "p@1", Note: note("o")})
		},
		"a hold that is not there": func(s State) (State, error) { return s.ReleaseHold(note("h")) },
	} {
		if s, err := f(State{V: 1}); err == nil || !reflect.DeepEqual(s, State{V: 1}) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The list of orders does not grow for ever, and forgets none that is open.
func TestOrdersAreForgotten(t *testing.T) {
	s := State{V: 1}
	for i := range 500 {
		id := fmt.Sprint("o", i)
		s = must[State](t)(s.RequestErasure(Order{Scope: subject(id), Note: note(id)}))
		if i != 7 {
			s = must[State](t)(s.RefuseOrder(id, "no", at))
		}
	}
	if _, ok := s.FindOrder("o7"); !ok || len(s.Orders) > maxOrders {
		t.Errorf("%d orders", len(s.Orders))
	}
	text, err := s.Encode()
	if err != nil || strings.Contains(string(text), `"subject":"o400"`) || !strings.Contains(string(text), `"subject":"o7"`) {
		t.Errorf("a subject is remembered after its order is over: %v", err)
	}
	back, err := Decode(text)
	if again, _ := back.Encode(); err != nil || string(again) != string(text) {
		t.Errorf("%v", err)
	}
}

const sample = `
version: 1
name: acme
description: what we keep
log: 90d
quarantine: 1w
sessions:
  - {match: "demo-*", log: 24h}
  - {match: sess-important, keep: true}
`

func TestPolicy(t *testing.T) {
	p, err := Parse("p.yaml", []byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	for s, want := range map[string]time.Duration{"x": 90 * day, "demo-1": day, "demo": 90 * day, "sess-important": 0} {
		if got := p.LogPeriod(s); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	if p.QuarantinePeriod() != 7*day || p.ShortestLog() != day || p.ID() != "acme@"+p.ID()[5:] || len(p.ID()) != 21 {
		t.Errorf("%v %v %s", p.QuarantinePeriod(), p.ShortestLog(), p.ID())
	}
	for name, text := range map[string]string{
		"nothing":            "",
		"another version":    strings.Replace(sample, "version: 1", "version: 2", 1),
		"no name":            strings.Replace(sample, "name: acme", "name: ''", 1),
		"an unknown key":     sample + "logs: 3d\n",
		"a key twice":        sample + "log: 3d\n",
		"no unit":            strings.Replace(sample, "90d", "90", 1),
		"zero":               strings.Replace(sample, "90d", "0d", 1),
		"negative":           strings.Replace(sample, "90d", "-90d", 1),
		"far away":           strings.Replace(sample, "90d", "99999w", 1),
		"neither":            strings.Replace(sample, ", log: 24h", "", 1),
		"both":               strings.Replace(sample, "keep: true", "keep: true, log: 3d", 1),
		"a star inside":      strings.Replace(sample, "demo-*", "d*mo", 1),
		"two documents":      sample + "---\n" + sample,
		"no mapping":         "- a\n",
		"no class":           sample + "retention: hash\n",
		"a class as a list":  sample + "retention: [hashes]\n",
		"a class of nothing": strings.Replace(sample, ", log: 24h", ", retention: ''", 1),
	} {
		if _, err := Parse("p.yaml", []byte(text)); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "p.yaml") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const keptEvidence = `
version: 1
name: acme
log: 90d
evidence: 400d
sessions:
  - {match: "demo-*", log: 24h, evidence: 48h}
  - {match: "long-*", log: 300d}
  - {match: "old-*", evidence: 100d}
  - {match: sess-important, keep: true}
  - {match: "med-*", retention: hashes}
`

// Evidence has periods of its own, which are never shorter than those of the log.
func TestEvidencePeriods(t *testing.T) {
	p, err := Parse("p.yaml", []byte(keptEvidence))
	if err != nil {
		t.Fatal(err)
	}
	day := 24 * time.Hour
	for s, want := range map[string]time.Duration{"x": 400 * day, "demo-1": 2 * day, "long-1": 400 * day, "old-1": 100 * day, "sess-important": 0, "med-1": 400 * day} {
		if got := p.EvidencePeriod(s); got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
	if got := fmt.Sprint(p.EvidenceRules()); p.ShortestEvidence() != 2*day || got != "[{demo-* 2d} {old-* 100d} {sess-important ever} { 400d}]" {
		t.Errorf("%v %s", p.ShortestEvidence(), got)
	}
	if p, err := Parse("p.yaml", []byte(sample)); err != nil || p.ShortestEvidence() != 0 || p.EvidencePeriod("demo-1") != 0 || p.EvidenceRules() != nil {
		t.Errorf("without a period of evidence all of it is kept: %v", err)
	}
	head := "version: 1\nname: a\n"
	for name, text := range map[string]string{
		"the tenant's own":              "log: 90d\nevidence: 30d\n",
		"an entry's":                    "sessions: [{match: a, log: 9d, evidence: 8d}]\n",
		"an entry's against the tenant": "log: 90d\nsessions: [{match: a, evidence: 8d}]\n",
		"the tenant's against an entry": "log: 9d\nevidence: 30d\nsessions: [{match: a, log: 31d}]\n",
	} {
		if _, err := Parse("p.yaml", []byte(head+text)); !errors.Is(err, ErrPolicy) || !strings.Contains(err.Error(), "is shorter than log: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"the same":              "log: 90d\nevidence: 90d\n",
		"without a log":         "evidence: 1h\n",
		"what is kept for ever": "log: 90d\nevidence: 90d\nsessions: [{match: a, keep: true}]\n",
	} {
		if _, err := Parse("p.yaml", []byte(head+text)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Parse("p.yaml", []byte(head+"sessions: [{match: a, evidence: 3d, keep: true}]\n")); err == nil {
		t.Error("kept for ever, and for three days")
	}
	overlap, err := Parse("p.yaml", []byte(head+"sessions: [{match: 'a*', evidence: 3d}, {match: 'ab*', log: 9d}]\n"))
	if err != nil || overlap.EvidencePeriod("abc") != 9*day || overlap.EvidencePeriod("ac") != 3*day {
		t.Errorf("%v: evidence goes before the log", err)
	}
}

func TestKeys(t *testing.T) {
	for _, tenant := range []string{"acme", "Müller & Co.", "a.b"} {
		if got, ok := StateTenant(StateKey(tenant)); !ok || got != tenant {
			t.Errorf("%q: %q", tenant, got)
		}
		if got, ok := PolicyTenant(PolicyKey(tenant)); !ok || got != tenant {
			t.Errorf("%q: %q", tenant, got)
		}
		if _, ok := StateTenant(PolicyKey(tenant)); ok {
			t.Errorf("%q: a policy is a state", tenant)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"holds":[{"session":"s","id":"h","by":"b","reason":"r","at":"2026-11-20T09:00:00Z"}],"orders":null,"last":{"what":"hold","id":"h","by":"b","reason":"r","at":"2026-11-20T09:00:00Z"}}`))
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Decode(b)
		if err != nil {
			return
		}
		text, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("version: 1\nname: a\nlog: 1h\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := Parse("p", b); err == nil && (p.LogPeriod("x") < 0 || p.ShortestLog() < 0 || p.ID() == "") {
			t.Fatalf("%q", b)
		}
	})
}

func TestParseSeqs(t *testing.T) {
	for text, want := range map[string]string{"12": "[[12 12]]", "12,20-25": "[[12 12] [20 25]]", "": "", "0": "", "5,5": "", "7-3": "", "1-10001": "", "1, 2": "", "-3": "", "x": "", "9007199254740993": ""} {
		spans, err := ParseSeqs(text)
		if got := fmt.Sprint(spans); err == nil && got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s (%v), want %s", text, got, err, want)
		}
	}
}
