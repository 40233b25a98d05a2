package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

func TestColumns(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  int
		in4   string // in a column of four
		lines string // broken into lines of six
	}{
		{"", 0, "    ", ""},
		{"ab", 2, "ab  ", "ab"},
		{"abcde", 5, "abc…", "abcde"},
		{"日本", 4, "日本", "日本"},
		{"日本語", 6, "日… ", "日本語"},
		{"日 本語 x", 9, "日 …", "日|本語 x"},
		{"日本語ツール", 12, "日… ", "日本語|ツール"},
		{"ｆull", 5, "ｆu…", "ｆull"},
		{"ﾊﾝｶｸ", 4, "ﾊﾝｶｸ", "ﾊﾝｶｸ"},
		{"한국", 4, "한국", "한국"},
		{"\u1112\u1161\u11ab", 2, "\u1112\u1161\u11ab  ", "\u1112\u1161\u11ab"},
		{"🚀go", 4, "🚀go", "🚀go"},
		{"👍🏽ok!", 5, "👍🏽o…", "👍🏽ok!"},
		{"🇨🇭", 2, "🇨🇭  ", "🇨🇭"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301 ", "e\u0301te\u0301"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301", 5, "e\u0301e\u0301e\u0301…", "e\u0301e\u0301e\u0301e\u0301e\u0301"},
		{"äöüß", 4, "äöüß", "äöüß"},
	} {
		if got := columns(c.text); got != c.want {
			t.Errorf("%q takes %d columns, want %d", c.text, got, c.want)
		}
		if got := pad(c.text, 4); got != c.in4 {
			t.Errorf("%q in a column of four is %q, want %q", c.text, got, c.in4)
		}
		if got := strings.Join(breakLines(c.text, 6), "|"); got != c.lines {
			t.Errorf("%q in lines of six is %q, want %q", c.text, got, c.lines)
		}
	}
	if got := clean("x"+strings.Repeat("\u0301", 1000), 10); len([]rune(got)) != marks*10+1 {
		t.Errorf("%d characters in ten columns", len([]rune(got)))
	}
}

// Whatever prints columns prints the same ones for text that is as wide in another
// script.
func TestColumnsOfEveryTable(t *testing.T) {
	builder, err := evidence.NewBuilder("GOV", subject.Space{})
	if err != nil {
		t.Fatal(err)
	}
	chain := evidence.NewChain(func(evidence.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	rowOf := func(subj string, record any) storage.EvidenceRow {
		body, err := events.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		built, err := builder.BuildBatch(chain, []events.LogMessage{{Seq: 1, Subject: subj, Time: time.Unix(0, 0), Body: body}}, plainKeys{})
		if err != nil {
			t.Fatal(err)
		}
		r := built[0].Row()
		return storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Session: r.Session, BrokerTime: r.BrokerTime, Record: r.Record}
	}
	for name, print := range map[string]func(io stdio, p *printer, x string){
		"calls": func(io stdio, p *printer, x string) {
			call := events.Call{Tenant: "acme", Session: x, Tool: x, ToolCallID: x, State: events.CallCompleted, Timeline: []events.TimelineEntry{}}
			row := rowOf(subject.Space{}.Call("acme", "completed", "s"), call)
			row.Session = x
			if err := (&callsCmd{}).print(io, p, row); err != nil {
				t.Error(err)
			}
		},
		"a decision": func(_ stdio, p *printer, x string) {
			p.decision(events.Decision{Verdict: events.Deny, Tool: x, ToolCallID: x})
		},
		"a call": func(_ stdio, p *printer, x string) { p.callNews(events.Call{Tool: x, ToolCallID: x}) },
		"an approval": func(_ stdio, p *printer, x string) {
			p.approvalNews(events.Approval{Status: x, Tool: x, WorkflowID: x, Approver: "a"})
		},
		"a workflow": func(_ stdio, p *printer, x string) {
			p.workflow(approval.View{Tool: x, Source: x}, time.Time{})
		},
		"an argument": func(_ stdio, p *printer, x string) { p.item(x, approval.Item{Value: "v"}) },
		"a chain": func(io stdio, _ *printer, x string) {
			_ = printChain(io, evidencereader.Session{Rows: []evidence.Row{{Kind: x}}}, nil, false, false)
		},
		"a listing": func(io stdio, _ *printer, x string) { _ = listing{{x, x, x}, {"abcd", "b", "c"}}.print(io.out) },
		"a rule": func(io stdio, _ *printer, x string) {
			_ = ruleLine{ID: "x", Refs: x, Status: catalogue.Implemented}.print(io.out)
		},
	} {
		t.Run(name, func(t *testing.T) {
			write := func(x string) string {
				var out bytes.Buffer
				io := stdio{out: &out}
				print(io, newPrinter(&out), x)
				return strings.ReplaceAll(out.String(), x, "ab")
			}
			plain := write("ab")
			if !strings.Contains(plain, "ab") {
				t.Fatalf("%q", plain)
			}
			for _, x := range []string{"金", "🚀", "e\u0301x"} {
				if got := write(x); got != plain {
					t.Errorf("%q:\n%s\nwant\n%s", x, got, plain)
				}
			}
		})
	}
}
