package main

import (
	"cmp"
	"fmt"
)

// print writes a report for people.
func (r *replayReport) print(p *printer) {
	p.printf("%s\n", p.paint(bold, fmt.Sprintf("session %s of tenant %s, shard %s, from %s", clean(r.Session, 80), clean(r.Tenant, 40), clean(r.Shard, 80), r.From)))
	p.printf("  %s replayed\n  recorded: %s, %s\n  replayed: %s, %s\n", plural(r.Messages, "message"),
		plural(r.Recorded.Calls, "call record"), plural(r.Recorded.Findings, "finding"), plural(r.Replayed.Calls, "call record"), plural(r.Replayed.Findings, "finding"))
	for _, m := range r.Differences {
		printMismatch(p, m, red)
	}
	printInconclusive(p, r.Inconclusive)
	if r.Pending > 0 {
		p.printf("  %s of the newest messages: the correlator may not have come so far\n", plural(r.Pending, "output"))
	}
	if r.Reidentified > 0 {
		p.printf("  %s the same but for the id, which is made of bytes that evidence does not hold\n", plural(r.Reidentified, "finding"))
	}
	switch {
	case !r.Same:
		p.printf("%s\n", p.paint(red, "DIFFERENT: not all comes out as it was recorded"))
		if !r.Whole {
			p.printf("  a session can depend on others (event ids, tokens and nonces of its publisher): look again with --whole.\n" +
				"  It also differs if the correlator runs with other options (--missing-after, --no-verdict-ok) or is of another version.\n")
		}
	case len(r.Inconclusive) > 0:
		p.printf("%s\n", p.paint(yellow, "same, as far as it can be compared"))
	default:
		p.printf("%s\n", p.paint(green, "same: every call and finding comes out as it was recorded"))
	}
}

var mismatchWords = map[string]string{"not_recorded": "comes out and is not recorded", "not_replayed": "is recorded and does not come out",
	"recorded_twice": "is recorded twice", "differs": "comes out otherwise"}

func printMismatch(p *printer, m outputMismatch, colour string) {
	p.printf("  %s %s\n", p.paint(colour, clean(m.What, 120)), mismatchWords[m.Kind])
	p.wrapped(4, "", fmt.Sprintf("%s, at %d", m.ID, m.Seq), faint)
	for _, f := range m.Fields {
		p.wrapped(4, "", f.Field+": recorded "+cmp.Or(string(f.Recorded), "nothing")+", replayed "+cmp.Or(string(f.Replayed), "nothing"), "")
	}
}

// printInconclusive counts by reason; --json has each.
func printInconclusive(p *printer, list []outputMismatch) {
	counts := map[string]int{}
	var reasons []string
	for _, m := range list {
		if counts[m.Why]++; counts[m.Why] == 1 {
			reasons = append(reasons, m.Why)
		}
	}
	for _, why := range reasons {
		p.wrapped(2, "", plural(counts[why], "record")+" cannot be compared in full: "+why, yellow)
	}
}
