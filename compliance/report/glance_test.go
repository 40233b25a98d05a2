package report

import (
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
		b.summaryCounts.addFinding(events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityCritical})
	}
	b.summaryCounts.addFinding(events.Finding{Rule: "executed_despite_deny", Severity: events.SeverityInfo, Retracts: "f1"})
	b.summaryCounts.addApproval(events.Approval{WorkflowID: "w9", Status: "pending"})
	b.summaryCounts.addApproval(events.Approval{WorkflowID: "w9", Status: "expired"})
	rows := b.summaryRows()
	var page strings.Builder
	if err := b.Render(&page); err != nil {
		t.Fatal(err)
	}
	found := rows[0]
	if found.Name != "Findings" || found.Marks[0].Word != "critical" || found.Marks[0].N < MaxRows+5 || !strings.HasPrefix(found.Text, "executed_despite_deny (") || !strings.HasSuffix(found.Text, "2 taken back") {
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
