package correlate

import (
	"cmp"
	"fmt"

	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// print prints a report for display.
func (r *replayReport) print(p *ui.Printer) {
	p.Printf("%s\n", p.Paint(ui.Bold, fmt.Sprintf("session %s of tenant %s, shard %s, from %s", ui.Clean(r.Session, 80), ui.Clean(r.Tenant, 40), ui.Clean(r.Shard, 80), r.From)))
	p.Printf("  %s replayed\n  recorded: %s, %s\n  replayed: %s, %s\n", ui.Plural(r.Messages, "message"),
		ui.Plural(r.Recorded.Calls, "call record"), ui.Plural(r.Recorded.Findings, "finding"), ui.Plural(r.Replayed.Calls, "call record"), ui.Plural(r.Replayed.Findings, "finding"))
	for _, m := range r.Differences {
		printMismatch(p, m, ui.Red)
	}
	printInconclusive(p, r.Inconclusive)
	if r.Pending > 0 {
		p.Printf("  %s of the newest messages: the correlator may not have come so far\n", ui.Plural(r.Pending, "output"))
	}
	if r.Reidentified > 0 {
		p.Printf("  %s the same but for the id, which is made of bytes that evidence does not hold\n", ui.Plural(r.Reidentified, "finding"))
	}
	for _, seq := range r.Erased {
		p.Printf("  the session was erased (sequence %d): the correlator forgot what came before, and correlated what came after without it. The evidence has both.\n", seq)
	}
	switch {
	case !r.Same:
		p.Printf("%s\n", p.Paint(ui.Red, "DIFFERENT: not all comes out as it was recorded"))
		if !r.Whole {
			p.Printf("  a session can depend on others (event ids, tokens and nonces of its publisher): look again with --whole.\n" +
				"  It also differs if the correlator runs with other options (--missing-after, --no-verdict-ok, --max-calls, --max-sessions) or is of another version.\n")
		}
	case len(r.Inconclusive) > 0:
		p.Printf("%s\n", p.Paint(ui.Yellow, "same, as far as it can be compared"))
	default:
		p.Printf("%s\n", p.Paint(ui.Green, "same: every call and finding comes out as it was recorded"))
	}
}

var mismatchWords = map[string]string{"not_recorded": "comes out and is not recorded", "not_replayed": "is recorded and does not come out",
	"recorded_twice": "is recorded twice", "differs": "comes out otherwise"}

func printMismatch(p *ui.Printer, m outputMismatch, colour string) {
	p.Printf("  %s %s\n", p.Paint(colour, ui.Clean(m.What, 120)), mismatchWords[m.Kind])
	p.Wrapped(4, "", fmt.Sprintf("%s, at %d", m.ID, m.Seq), ui.Faint)
	for _, f := range m.Fields {
		p.Wrapped(4, "", f.Field+": recorded "+cmp.Or(string(f.Recorded), "nothing")+", replayed "+cmp.Or(string(f.Replayed), "nothing"), "")
	}
}

// printInconclusive counts by reason; --json lists each.
func printInconclusive(p *ui.Printer, list []outputMismatch) {
	counts := map[string]int{}
	var reasons []string
	for _, m := range list {
		if counts[m.Why]++; counts[m.Why] == 1 {
			reasons = append(reasons, m.Why)
		}
	}
	for _, why := range reasons {
		p.Wrapped(2, "", ui.Plural(counts[why], "record")+" cannot be compared in full: "+why, ui.Yellow)
	}
}
