package report

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// What a reader has to know first stands first, counted whatever the tables have
// room for.
func TestGlance(t *testing.T) {
	b := New(source())
	for _, r := range sample(t) {
		b.Add(r)
	}
	for range MaxRows + 5 {
		b.summaryCounts.addFindings(events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityCritical}, 1)
	}
	b.summaryCounts.addApproval(events.Approval{WorkflowID: "w9", Status: "pending"})
	b.summaryCounts.addApproval(events.Approval{WorkflowID: "w9", Status: "expired"})
	rows := b.summaryRows()
	var page strings.Builder
	if err := b.Render(&page); err != nil {
		t.Fatal(err)
	}
	found := rows[0]
	if found.Name != "Findings" || found.Marks[0].Word != "critical" || found.Marks[0].N < MaxRows+5 || !strings.HasPrefix(found.Text, "executed_despite_deny (") || !strings.HasSuffix(found.Text, "; 1 other taken back") {
		t.Errorf("%+v", found)
	}
	if strings.Index(page.String(), `id="glance"`) > strings.Index(page.String(), `id="findings"`) || strings.Index(page.String(), `id="findings"`) > strings.Index(page.String(), `id="verdicts"`) {
		t.Error("findings do not come first")
	}
	for _, row := range rows {
		if !strings.Contains(page.String(), `id="`+row.Link+`"`) {
			t.Errorf("%s leads nowhere: #%s", row.Name, row.Link)
		}
		for _, m := range row.Marks {
			if m.Word == "pending" && row.Name == "Approvals" && m.N > 5 {
				t.Errorf("a workflow counts twice: %+v", row)
			}
		}
	}
	b.chainCheck = chainCheck{}
	for n := range maxNotes + 6 {
		index := uint64(2 * (n + 1))
		b.chainCheck.addRecord(evidence.Record{Seq: index, Session: "s", SessionIndex: &index})
	}
	if rows := b.summaryRows(); rows[len(rows)-1].Marks[0] != (summaryMark{"broken", maxNotes + 5}) || !strings.Contains(fmt.Sprint(b.completenessPairs()), "; and 5 more") {
		t.Errorf("%+v", rows)
	}
}

// What was taken back counts neither at a glance nor for a control; what takes back a finding that is not here
// takes nothing away.
func TestTakenBackIsNotCounted(t *testing.T) {
	l := &log{t: t, session: "s"}
	for i, id := range []string{"f1", "f2", "f3"} {
		l.finding(events.Finding{FindingID: id, Rule: "orphan_completion", Severity: events.SeverityHigh})
		l.finding(events.Finding{FindingID: fmt.Sprint("r", i), Rule: "orphan_completion", Severity: events.SeverityInfo, Retracts: []string{"f1", "of another range", "f3"}[i]})
	}
	b := New(source())
	for i, want := range []struct{ stand, takenBack int }{{1, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 2}, {1, 3}} {
		b.Add(l.records[i])
		row, text, inControls := b.summaryRows()[0], "", 0
		if want.stand > 0 {
			text = fmt.Sprintf("orphan_completion (%d)", want.stand)
		}
		if want.takenBack > 0 {
			text = fmt.Sprintf("%s; %s taken back", cmp.Or(text, "none that stands"), countWord(want.takenBack, "other"))
		}
		for _, e := range b.ControlSupport().Entries {
			inControls = max(inControls, e.Findings["orphan_completion"])
		}
		if n := len(row.Marks); row.Text != text || inControls != want.stand || n != min(want.stand, 1) || n > 0 && row.Marks[0] != (summaryMark{"high", want.stand}) {
			t.Errorf("after record %d: %+v, %d in the controls, not %q", i+1, row, inControls, text)
		}
	}
}

// Digests that share a key can be told apart, and can be compared by eye.
func TestShortDigests(t *testing.T) {
	hex := strings.Repeat("0123456789abcdef", 4)
	for long, want := range map[string]string{
		"sha256:" + hex: "sha256:0123456789abcdef…",
		"session-hmac-sha256:7ffcb572317c86c3:" + hex: "session-hmac-sha256:0123456789abcdef…",
		"hmac-sha256:short":                           "hmac-sha256:short",
		"":                                            "",
	} {
		if got := shortDigest(long); got != want {
			t.Errorf("%s is shown as %s, want %s", long, got, want)
		}
	}
	if other := shortDigest("session-hmac-sha256:7ffcb572317c86c3:" + strings.Repeat("f", 64)); !regexp.MustCompile(`:f{16}…$`).MatchString(other) {
		t.Error(other)
	}
}

// TestCountedAgain: a rule of which every finding was taken back is counted again, however many rules are known.
func TestCountedAgain(t *testing.T) {
	var g summaryCounts
	for n := range MaxNames {
		g.addFindings(events.Finding{Rule: fmt.Sprint("rule", n), Severity: events.SeverityLow}, 1)
	}
	for _, n := range []int{-1, 1, 1} {
		g.addFindings(events.Finding{Rule: "rule0", Severity: events.SeverityLow}, n)
	}
	g.addFindings(events.Finding{Rule: "one more", Severity: events.SeverityLow}, 1)
	if g.rules["rule0"] != 2 || len(g.rules) != MaxNames {
		t.Errorf("%d of rule0, %d rules", g.rules["rule0"], len(g.rules))
	}
}
