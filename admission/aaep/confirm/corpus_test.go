package confirm

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/call"
	"github.com/countersign-dev/countersign/correlation/corpus"
	"github.com/countersign-dev/countersign/events/subject"
)

// TestAsTheCorrelator: in each case of the correlator's corpus that is about AAEP-C-100, every irreversible invocation is
// confirmed here if and only if the correlator does not find that the user had not accepted it.
func TestAsTheCorrelator(t *testing.T) {
	cases, err := corpus.Read("../../../correlation/testdata")
	if err != nil {
		t.Fatal(err)
	}
	judged := 0
	for _, c := range cases {
		if c.Protocol != subject.ProtoAAEP || c.Only == "recorded" || !slices.Contains(c.Checks, "AAEP-C-100") {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			asked, confirmed := replay(t, c)
			if asked > 0 && confirmed == c.Violates {
				t.Errorf("confirmed is %v", confirmed)
			}
			judged += asked
		})
	}
	if judged < 35 {
		t.Errorf("only %d invocations were judged", judged)
	}
}

// replay plays a case. It returns the number of its irreversible invocations, and whether all of them were confirmed before.
func replay(t *testing.T, c corpus.Case) (asked int, confirmed bool) {
	p, confirmed := newTape(t), true
	for n, line := range c.Lines {
		if docs, is := line["publishers"].([]any); is {
			list := frontEnds(t, docs)
			p.l.opts.Repliers = func(string) []string { return list }
			continue
		}
		e, is := corpus.Complete(c.Protocol, line, n).(corpus.Tree)
		typ, _ := e["type"].(string)
		if !is || typ == "" {
			continue
		}
		at, there := line["broker"].(float64)
		if !there {
			at = corpus.Seconds(line, n)
		}
		p.now = corpus.Epoch.Add(time.Duration(at * float64(time.Second)))
		text := func(key string) string { s, _ := e[key].(string); return s }
		from, _ := line["from"].(string)
		i := call.Invocation{Tenant: "acme", Source: cmp.Or(from, "rt1"), Session: text("session_id"), ToolCallID: text("tool_call_id"),
			Tool: text("tool"), Risk: text("risk_level"), Irreversible: true, Now: p.now}
		if line["t"] == "tool.invoked" && e["irreversible"] == true {
			found := p.l.Confirmation(i)
			asked, confirmed = asked+1, confirmed && found.Status == call.ConfirmationAccepted && !found.Understated
			p.l.Use(found.ID, i.ToolCallID)
		}
		p.put(space.Event("acme", i.Source, c.Protocol, i.Session, strings.TrimPrefix(typ, "aaep:")), e)
	}
	return asked, confirmed
}

// frontEnds are the publishers that answer, among registrations.
func frontEnds(t *testing.T, docs []any) (list []string) {
	var registered []struct {
		Declares struct {
			Publisher string
			Answers   bool
		}
	}
	b, err := json.Marshal(docs)
	if err == nil {
		err = json.Unmarshal(b, &registered)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range registered {
		if d.Declares.Answers {
			list = append(list, d.Declares.Publisher)
		}
	}
	return list
}
