package correlation

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/correlation/fact"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// ofProtocols are the files that may name a protocol: the table, and the files of one
// protocol.
var ofProtocols = regexp.MustCompile(`^(protocols|(agenthook|aaep|aump|aioc)(_[a-z]+)?)\.go$`)

// genericFolders are the folders of code that is of no protocol.
var genericFolders = []string{".", "fact", "internal/eventtime", "internal/snapshot", "internal/tables"}

// TestGenericCodeNamesNoProtocol: no import and no identifier of generic code names a
// protocol. Generic code asks the row.
func TestGenericCodeNamesNoProtocol(t *testing.T) {
	name := regexp.MustCompile(`(?i:agent_?hook|hooksession|aaep|aump|aioc|aana|^hook$)|^Proto[A-Z]|^proto[A-Z]`)
	var found []string
	read := 0
	for _, dir := range genericFolders {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		before := read
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") || ofProtocols.MatchString(e.Name()) {
				continue
			}
			read++
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				what := ""
				switch x := n.(type) {
				case *ast.ImportSpec:
					what = x.Path.Value
				case *ast.Ident:
					what = x.Name
				}
				if name.MatchString(what) {
					found = append(found, file+": "+what)
				}
				return true
			})
		}
		if read == before {
			t.Errorf("no generic file was read in %s", dir)
		}
	}
	if read < 20 {
		t.Fatalf("only %d generic files were read", read)
	}
	for _, f := range found {
		t.Errorf("%s names a protocol; ask its row in protocols.go", f)
	}
}

// toyProtocol is a protocol of this test alone: {"toy":"start"|"finish","id":…,"call":…,"tool":…}.
var toyProtocol = &protocolRow{
	Protocol: fact.Protocol{Token: "toy", Decode: func(d *fact.Decoder, in fact.EventMessage, r *fact.DecodedEvent) {
		var e struct {
			Toy     string `json:"toy"`
			ID      string `json:"id"`
			Session string `json:"session"`
			Call    string `json:"call"`
			Tool    string `json:"tool"`
		}
		if r.ReadError = strictjson.Unmarshal(in.Data, &e); r.ReadError != nil {
			return
		}
		f := &r.Fact
		f.EventID = e.ID
		f.SetCall(e.Call, e.Tool)
		switch {
		case in.Request:
			f.Kind = fact.KindRequest
		case e.Toy == "start":
			f.Kind = fact.KindPre
		case e.Toy == "finish":
			f.Kind, f.Effect, f.Outcome = fact.KindPost, fact.HadEffect, "success"
		}
		r.SetSession(in.Subject, e.Session)
	},
		DecodesRequests: true},
}

func addToyProtocol(t *testing.T) {
	before := protocols
	setProtocols(append(slices.Clone(before), toyProtocol)...)
	t.Cleanup(func() { setProtocols(before...) })
}

// TestToyProtocolIsCorrelated: one row is enough for a protocol to be correlated. Its calls
// are linked with admissions, and what ran without a beginning, against a deny, or never
// ended is found.
func TestToyProtocolIsCorrelated(t *testing.T) {
	addToyProtocol(t)
	toy := func(l *ledger, typ, call string) {
		l.put(space.Event("acme", "rt1", "toy", "s1", typ), nil, encode(tree{"toy": typ, "id": typ + call, "session": "s1", "call": call, "tool": "dig"}))
	}
	admit := func(l *ledger, call string, v events.Verdict) {
		e := tree{"toy": "start", "id": "start" + call, "session": "s1", "call": call, "tool": "dig"}
		l.put(space.Request("acme", "rt1", "toy", "s1"), map[string][]string{events.HeaderDecisionID: {"d" + call}}, encode(e))
		l.signed(events.Decision{DecisionID: "d" + call, EventID: "start" + call, Tenant: "acme", Source: "rt1", Session: "s1", Protocol: "toy", Tool: "dig",
			ToolCallID: call, Verdict: v, Reasons: []events.Reason{}, DecidedAt: events.At(l.now), ExpiresAt: events.At(l.now.Add(60e9))}, signer)
	}
	for _, tc := range []struct {
		name string
		play func(l *ledger)
		want []string
	}{
		{"linked", func(l *ledger) { admit(l, "c1", events.Allow); toy(l, "start", "c1"); toy(l, "finish", "c1") }, nil},
		{"orphan", func(l *ledger) { toy(l, "finish", "c1") }, []string{OrphanCompletion}},
		{"denied but ran", func(l *ledger) { admit(l, "c1", events.Deny); toy(l, "start", "c1"); toy(l, "finish", "c1") }, []string{ExecutedDespiteDeny}},
		{"no verdict", func(l *ledger) { toy(l, "start", "c1"); toy(l, "finish", "c1") }, []string{ExecutedWithoutVerdict}},
		{"never ended", func(l *ledger) { admit(l, "c1", events.Allow); toy(l, "start", "c1"); l.idle(90_000) }, []string{MissingCompletion}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			tc.play(l)
			r := l.run()
			var got []string
			for _, f := range slices.Concat(r.findings, r.checks) {
				got = append(got, f.Rule)
			}
			slices.Sort(got)
			slices.Sort(tc.want)
			if !slices.Equal(got, tc.want) {
				t.Errorf("findings %v, want %v", got, tc.want)
			}
		})
	}
}
