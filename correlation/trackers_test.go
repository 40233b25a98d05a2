package correlation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What late events prove wrong is withdrawn; what was out of order stays said.
func TestLateEventsOfASession(t *testing.T) {
	at := func(n int, typ string, number any, members tree) tree {
		e := wire(n, typ, float64(n), members)
		if number != nil {
			e = set(e, "sequence_number", number)
		}
		return e
	}
	progress := func(n int) tree { return at(n, "progress.updated", n, tree{"progress": tree{"percent": 1}}) }
	start, end := at(0, "session.started", 0, nil), func(n int) tree { return at(n, "session.cancelled", n, tree{"cancelled_by": "user"}) }
	chunk := func(n, position int, text string, last bool) tree {
		return set(at(n, "output.streaming", n, tree{"output_id": "out_1", "chunk": text, "position": position, "complete": last}), "summary_normal", nil)
	}
	asked := completeAAEP(tree{"t": "awaiting.confirmation", "ask": "1", "at": 1.0}, 1)
	yes := set(set(completeAAEP(tree{"t": "confirmation.reply", "at": 2.0}, 2), "reply_token", "rpl_1"), "decision", "reject")
	bare := func(e tree) tree { return set(e, "sequence_number", nil) }
	for _, tc := range []struct {
		name   string
		events []tree
		want   []string
	}{
		{"one number late", []tree{start, progress(2), progress(1), end(3)}, []string{"AAEP-C-065 a number comes again or late"}},
		{"two of three numbers late", []tree{start, progress(4), progress(2), progress(1), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late", "AAEP-C-065 numbers are missing"}},
		{"all of three numbers late", []tree{start, progress(4), progress(2), progress(1), progress(3), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late"}},
		{"a number twice fills nothing", []tree{start, progress(1), progress(3), set(progress(1), "event_id", "evt_x"), end(4)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 numbers are missing"}},
		{"the start is late by its number", []tree{progress(1), start, end(2)}, []string{"AAEP-C-065 a number comes again or late"}},
		{"the start is late by its time", []tree{bare(progress(1)), bare(start), bare(end(2))}, []string{"AAEP-C-066 Time runs backwards within a session."}},
		{"the start was emitted late", []tree{bare(progress(1)), bare(set(start, "timestamp", stamp(1.5))), bare(end(2))},
			[]string{"AAEP-C-060 An event came before its session had started."}},
		{"a chunk is late", []tree{start, chunk(1, 0, "abc", false), chunk(3, 6, "ghi", false), chunk(2, 3, "def", false), chunk(4, 9, "", true), end(5)},
			[]string{"AAEP-C-065 a number comes again or late"}},
		{"two chunks are late, the last one first", []tree{start, chunk(1, 0, "abc", false), chunk(4, 9, "", true), chunk(2, 3, "def", false), chunk(3, 6, "ghi", false), end(5)},
			[]string{"AAEP-C-065 a number comes again or late", "AAEP-C-065 a number comes again or late"}},
		{"a chunk is sent late", []tree{start, chunk(1, 0, "abc", false), chunk(2, 6, "ghi", false), chunk(3, 3, "def", false), chunk(4, 6, "", true), end(5)},
			[]string{"AAEP-C-140 The position within an output went back.", "AAEP-C-141 A chunk does not begin where the one before it ended."}},
		{"a reply overtakes its question", []tree{bare(start), yes, bare(asked), bare(at(3, "state.changed", nil, tree{"from_state": "idle", "to_state": "thinking"})), bare(end(4))}, nil},
		{"a reply to what nobody asks", []tree{bare(start), set(yes, "reply_token", "rpl_9"), bare(asked), yes, bare(end(4))},
			[]string{"AAEP-C-110 A reply is to no question that is open: no question has this token."}},
		{"a reply from before its question", []tree{bare(start), set(yes, "timestamp", stamp(-60)), bare(asked), bare(end(4))},
			[]string{"AAEP-C-110 A reply is to no question that is open: no question has this token."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			for i, e := range tc.events {
				l.at(float64(i)).event(e)
			}
			r := l.run()
			withdrawn := map[string]bool{}
			for _, f := range r.checks {
				withdrawn[f.Retracts] = true
			}
			var got []string
			for _, f := range r.checks {
				if f.Retracts == "" && !withdrawn[f.FindingID] && f.Severity != "info" {
					what := f.Explanation
					if _, after, ok := strings.Cut(what, ": "); ok && f.Rule == "AAEP-C-065" {
						what = strings.TrimSuffix(after, ".")
					}
					got = append(got, f.Rule+" "+what)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			for cut := range l.msgs {
				resumedAt(t, l, cut, r)
			}
		})
	}
}
