package aaep

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
	aaepschema "github.com/countersign-dev/countersign/schemas/aaep"
)

var now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

var terms = Terms{AgentID: "gateway", Languages: []string{"en"}}

func message(t testing.TB, text string) Message {
	t.Helper()
	m, err := Decode([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return m
}

func request(capabilities string) string {
	return `{"type":"subscription.request","aaep_version":"1.0.0","subscriber_id":"reader","capabilities":` + capabilities + `}`
}

func open(t testing.TB, terms Terms, capabilities string) *Subscription {
	t.Helper()
	s, r := Negotiate(terms, message(t, request(capabilities)), "sub_1")
	if r != nil {
		t.Fatal(r)
	}
	follows(t, s.Accepted())
	return s
}

// follows fails unless a message follows its schema.
func follows(t testing.TB, message any) {
	t.Helper()
	b, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := strictjson.ReadObject(b, strictjson.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if v := aaepschema.Strict(doc); len(v) > 0 {
		t.Errorf("%s: %v", b, v)
	}
}

func event(t testing.TB, typ, more string) Event {
	t.Helper()
	e, ok := ReadEvent([]byte(`{"@context":["https://aaep-protocol.org/context/v1","https://example.test/medai"],"type":"` + typ + `","event_id":"evt_1","session_id":"sess_1",` +
		`"timestamp":"2026-11-20T12:00:00.000Z","producer":{"agent_id":"a"},"summary_normal":"N"` + more + `}`))
	if !ok {
		t.Fatalf("%s is no event", typ)
	}
	return e
}

const question = `,"urgency":"critical","action":"Pay","consequence":"It is paid.","reply_token":"rpl_1","timeout_seconds":60,"default_decision":"reject"`

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON": `{`, "array": `[]`, "a duplicate": `{"type":"subscription.close","type":"subscription.close","subscription_id":"sub_1"}`,
		"invalid UTF-8": "{\"type\":\"subscription.close\",\"subscription_id\":\"sub_1\",\"reason_message\":\"\xff\"}",
		"an event":      `{"type":"aaep:agent.session.started"}`, "an acceptance": `{"type":"subscription.accepted"}`,
		"an empty id": `{"type":"subscription.close","subscription_id":""}`, "terms that are none": `{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"max_events_per_second":0}}`,
		"a huge rate": request(`{"max_events_per_second":1e400}`),
		"too large":   request(`{"x":{"y":"` + strings.Repeat("z", MaxMessage) + `"}}`),
	} {
		if m, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func TestNegotiate(t *testing.T) {
	for name, c := range map[string]struct {
		terms           Terms
		version, wanted string
		code            string
		honored         string
	}{
		"nothing asked":       {terms, "1.0.0", `{}`, "", `{"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"another minor":       {terms, "1.7.0", `{}`, "", `{"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"no such version":     {terms, "99.99.99", `{}`, VersionUnsupported, ""},
		"signed only":         {terms, "1.0.0", `{"accept_signed_manifests_only":true}`, SignatureRequired, ""},
		"a reserved prefix":   {terms, "1.0.0", `{"rdf":{}}`, CapabilitiesIncompatible, ""},
		"unknown extension":   {terms, "1.0.0", `{"medai":{"x":1}}`, "", `{"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"languages":           {terms, "1.0.0", `{"languages":["yo","EN-gb"]}`, "", `{"languages":["EN-gb"],"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"less than asked":     {Terms{AgentID: "g", MaxRate: 5}, "1.0.0", `{"max_events_per_second":9,"supports_confirmation_reply":true}`, "", `{"max_events_per_second":5,"supports_confirmation_reply":true,"supports_clarification_reply":false}`},
		"never more":          {Terms{AgentID: "g", MaxRate: 50}, "1.0.0", `{"max_events_per_second":9}`, "", `{"max_events_per_second":9,"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"what it cannot do":   {terms, "1.0.0", `{"pace_wpm":100,"coalesce_boundaries":["sentence"],"cognitive_load":"low"}`, "", `{"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
		"names in other case": {terms, "1.0.0", `{"Supports_Confirmation_Reply":{}}`, "", `{"supports_confirmation_reply":false,"supports_clarification_reply":false}`},
	} {
		s, r := Negotiate(c.terms, message(t, strings.Replace(request(c.wanted), "1.0.0", c.version, 1)), "sub_1")
		if r != nil {
			if follows(t, r); r.Code != c.code {
				t.Errorf("%s: %+v", name, r)
			}
			continue
		}
		follows(t, s.Accepted())
		if got, _ := json.Marshal(s.honored); string(got) != c.honored || c.code != "" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestNegotiateFlawed: a request that breaks its schema is rejected in AAEP's words, and the version comes first, so that a
// subscriber can fall back. A newer minor version may say more than 1.0 knows.
func TestNegotiateFlawed(t *testing.T) {
	const more = `{"type":"subscription.request","aaep_version":"VERSION","subscriber_id":"r","capabilities":{"max_latency_ms":200},"auth":{}}`
	for name, c := range map[string]struct{ text, code, says string }{
		"another version's members": {strings.Replace(more, "VERSION", "2.0.0", 1), VersionUnsupported, Version},
		"a newer minor's members":   {strings.Replace(more, "VERSION", "1.1.0", 1), "", ""},
		"1.0 has no such members":   {strings.Replace(more, "VERSION", "1.0.3", 1), Unknown, "schema"},
		"no version":                {`{"type":"subscription.request","subscriber_id":"r","capabilities":{}}`, Unknown, "schema"},
		"no version at all":         {strings.Replace(more, "VERSION", "1.x", 1), Unknown, "schema"},
		"a rate of zero":            {request(`{"max_events_per_second":0}`), CapabilitiesIncompatible, "max_events_per_second"},
		"a newer minor's rate":      {strings.Replace(request(`{"max_events_per_second":0}`), "1.0.0", "1.1.0", 1), CapabilitiesIncompatible, "max_events_per_second"},
		"no language":               {request(`{"languages":[]}`), CapabilitiesIncompatible, "languages"},
		"a filter that is none":     {request(`{"event_filters":{"include":[1]}}`), CapabilitiesIncompatible, "event_filters"},
		"a capability of its own":   {request(`{"secret":1}`), CapabilitiesIncompatible, "must be an object"},
	} {
		s, r := Negotiate(terms, message(t, c.text), "sub_1")
		switch {
		case r == nil && c.code == "":
			follows(t, s.Accepted())
		case r == nil || r.Code != c.code || !strings.Contains(r.Message, c.says) || strings.Contains(r.Message, "secret"):
			t.Errorf("%s: %+v", name, r)
		default:
			follows(t, r)
		}
	}
}

func TestHandle(t *testing.T) {
	reply := `{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","subscription_id":"sub_1","timestamp":"2026-11-20T12:00:00.000Z"}`
	s := open(t, terms, `{"supports_confirmation_reply":true,"max_events_per_second":3}`)
	if out := s.Handle(message(t, reply)); string(out.Reply) != reply {
		t.Errorf("reply: %+v", out)
	}
	for name, text := range map[string]string{
		"another subscription's":  strings.Replace(reply, "sub_1", "sub_2", 1),
		"a decision that is none": strings.Replace(reply, "accept", "approve_once", 1),
		"a kind that it does not": `{"type":"clarification.reply","reply_token":"rpl_1","response":"x","subscription_id":"sub_1","timestamp":"2026-11-20T12:00:00.000Z"}`,
	} {
		if out := s.Handle(message(t, text)); out.Ignored == "" || out.Reply != nil || out.Answer != nil || out.Closed || out.Violation {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if out := s.Handle(message(t, request(`{}`))); !out.Violation {
		t.Errorf("a second request: %+v", out)
	}
	out := s.Handle(message(t, `{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"supports_clarification_reply":true}}`))
	if a, ok := out.Answer.(*Acceptance); !ok || !a.Honored.ConfirmationReply || !a.Honored.ClarificationReply || a.Honored.MaxEventsPerSecond != 3 {
		t.Errorf("renegotiated: %+v", out.Answer)
	}
	out = s.Handle(message(t, `{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"accept_signed_manifests_only":true}}`))
	if r, ok := out.Answer.(*Rejection); !ok || r.Code != SignatureRequired || !s.honored.ConfirmationReply || s.honored.SignedOnly {
		t.Errorf("not renegotiated: %+v", out.Answer)
	}
	for n := range 100 {
		s.Handle(message(t, fmt.Sprintf(`{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"x%d":{}}}`, n)))
	}
	if len(s.asked) > len(core) {
		t.Errorf("it keeps %d capabilities", len(s.asked))
	}
	if out := s.Handle(message(t, `{"type":"subscription.close","subscription_id":"sub_1"}`)); !out.Closed {
		t.Error("not closed")
	}
	if out := s.Handle(message(t, reply)); out.Ignored == "" || out.Reply != nil || s.Delivers(event(t, "aaep:agent.awaiting.confirmation", question), now) {
		t.Error("a closed subscription works on")
	}
}

func TestDelivers(t *testing.T) {
	plain, foreign := event(t, "aaep:agent.session.started", ""), event(t, "medai:alert", "")
	asks := event(t, "aaep:agent.awaiting.confirmation", question)
	urgent := event(t, "aaep:agent.session.started", `,"urgency":"critical"`)
	for wanted, want := range map[string][]bool{
		`{}`: {true, false, true, true},
		`{"event_filters":{"exclude":["aaep:agent.*"]}}`:                                          {false, false, true, true},
		`{"event_filters":{"include":["medai:*"]}}`:                                               {false, true, true, true},
		`{"event_filters":{"include":["aaep:agent.session.started"],"exclude":["*"]}}`:            {false, false, true, true},
		`{"event_filters":{"include":["https://aaep-protocol.org/types/agent.session.started"]}}`: {true, false, true, true},
		`{"event_filters":{"include":["https://aaep-protocol.org/types/agent.session.*"]}}`:       {true, false, true, true},
		`{"event_filters":{"exclude":["https://aaep-protocol.org/types/*"]}}`:                     {false, false, true, true},
	} {
		s := open(t, terms, wanted)
		var got []bool
		for _, e := range []Event{plain, foreign, asks, urgent} {
			got = append(got, s.Delivers(e, now))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", wanted, got)
		}
	}
	s, got, criticals := open(t, terms, `{"max_events_per_second":2}`), 0, 0
	for i := range 100 { // ten seconds
		at := now.Add(time.Duration(i) * 100 * time.Millisecond)
		if s.Delivers(plain, at) {
			got++
		}
		if s.Delivers(asks, at) {
			criticals++
		}
	}
	if got < 18 || got > 22 || criticals != 100 {
		t.Errorf("%d events in ten seconds, %d critical ones", got, criticals)
	}
}

// An output whose language the subscriber does not read is left out; nothing else is, and nothing if no language is
// honoured. A region makes no other language.
func TestDeliversLanguages(t *testing.T) {
	output := func(more string) Event {
		t.Helper()
		e, ok := ReadEvent([]byte(`{"@context":"https://aaep-protocol.org/context/v1","type":"aaep:agent.output.streaming","event_id":"evt_1","session_id":"sess_1","timestamp":"2026-11-20T12:00:00.000Z",` +
			`"producer":{"agent_id":"a"},"chunk":"One sentence.","position":0,"complete":false,"coalesce_hint":"sentence"` + more + `}`))
		if !ok {
			t.Fatalf("%s is no event", more)
		}
		return e
	}
	events := []Event{
		output(""), output(`,"language":"en-US"`), output(`,"language":"yo"`), output(`,"localization_hints":{"primary_language":"yo"}`), output(`,"language":"en","localization_hints":{"primary_language":"yo"}`),
		output(`,"language":"yo","urgency":"critical"`), event(t, "aaep:agent.session.started", `,"localization_hints":{"primary_language":"yo"}`),
	}
	both := Terms{AgentID: "gateway", Languages: []string{"en", "yo"}}
	for wanted, want := range map[string][]bool{
		`{}`:                            {true, true, true, true, true, true, true},
		`{"languages":["EN-gb"]}`:       {true, true, false, false, true, true, true},
		`{"languages":["yo-NG"]}`:       {true, false, true, true, false, true, true},
		`{"languages":["yo-NG","en"]}`:  {true, true, true, true, true, true, true},
		`{"languages":["tlh"]}`:         {true, true, true, true, true, true, true},
		`{"languages":["tlh","en-GB"]}`: {true, true, false, false, true, true, true},
	} {
		s := open(t, both, wanted)
		var got []bool
		for _, e := range events {
			got = append(got, s.Delivers(e, now))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v", wanted, got)
		}
	}
}

// What is no valid AAEP event goes to no subscriber.
func TestReadEventRefuses(t *testing.T) {
	for _, text := range []string{`{}`, `x`, `{"event_type":"PreToolUse","tool_input":{"command":"secret"}}`,
		`{"type":"confirmation.reply","reply_token":"rpl_1","decision":"accept","subscription_id":"sub_1","timestamp":"2026-11-20T12:00:00.000Z"}`,
		request(`{}`), fmt.Sprintf(`{"type":%q,"event_id":"evt_1"}`, "aaep:agent.session.started")} {
		if e, ok := ReadEvent([]byte(text)); ok {
			t.Errorf("%s: %+v", text, e)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(request(`{"event_filters":{"include":["*"]},"max_events_per_second":1}`)))
	f.Add([]byte(`{"type":"subscription.close","subscription_id":"sub_1"}`))
	f.Add([]byte(`{"type":"subscription.renegotiate","subscription_id":"sub_1","capabilities":{"languages":["en"]}}`))
	plain := event(f, "aaep:agent.session.started", "")
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := Decode(raw)
		if err != nil {
			return
		}
		s := open(t, terms, `{}`)
		if out := s.Handle(m); out.Answer != nil {
			follows(t, out.Answer)
		}
		if opened, r := Negotiate(terms, m, "sub_1"); r != nil {
			follows(t, r)
		} else {
			follows(t, opened.Accepted())
			opened.Delivers(plain, now)
		}
	})
}
