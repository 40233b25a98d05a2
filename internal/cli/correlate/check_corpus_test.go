package correlate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation/checks"
	"github.com/countersign-dev/countersign/correlation/corpus"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// checked runs `countersign check` over a case as JSON Lines, and gives the rules that
// it prints above level info, and those of level info.
func checked(t *testing.T, c corpus.Case) (broken, hinted []string) {
	t.Helper()
	lines, now := c.Recording()
	var in, out, errs bytes.Buffer
	for _, l := range lines {
		text, raw := l.(string)
		if !raw {
			b, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			text = string(b)
		}
		fmt.Fprintln(&in, text)
	}
	cmd := CheckCmd{Protocol: c.Protocol, File: "-"}
	if !now.IsZero() {
		cmd.Now = now.Format(time.RFC3339)
	}
	if err := cmd.Run(t.Context(), ui.Stdio{In: &in, Out: &out, Err: &errs}); err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	for dec := json.NewDecoder(&out); dec.More(); {
		var f checkLine
		if err := dec.Decode(&f); err != nil {
			t.Fatal(err)
		}
		if f.Severity == events.SeverityInfo {
			hinted = append(hinted, f.Rule)
		} else {
			broken = append(broken, f.Rule)
		}
	}
	return broken, hinted
}

// TestCheckPrintsTheCorpus: what the corpus says of a recorded session is what `check`
// prints of it, neither less nor more.
func TestCheckPrintsTheCorpus(t *testing.T) {
	cases, err := corpus.Read("../../../correlation/testdata")
	if err != nil {
		t.Fatal(err)
	}
	isCheck := map[string]bool{}
	for _, c := range checks.All() {
		isCheck[c.ID] = true
	}
	played := map[string]int{}
	for _, c := range cases {
		if c.Only == "live" {
			continue
		}
		played[c.Protocol]++
		t.Run(c.Protocol+" "+c.Name, func(t *testing.T) {
			broken, hinted := checked(t, c)
			for _, id := range c.Checks {
				if found := slices.Contains(broken, id) || slices.Contains(hinted, id); found != c.Violates {
					t.Errorf("%s is printed: %v", id, found)
				}
			}
			for _, rule := range broken {
				if !c.Violates || isCheck[rule] && !slices.Contains(c.Checks, rule) {
					t.Errorf("%s is printed, too", rule)
				}
			}
		})
	}
	if t.Logf("%v", played); played["aaep"] < 100 || played["agenthook"] < 100 {
		t.Errorf("only %v cases were played", played)
	}
}
