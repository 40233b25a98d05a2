package records

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/enginetest"
	"github.com/countersign-dev/countersign/storage/internal/storagetest"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
)

// viewed stores calls and findings of a tenant of the test's own.
func viewed(t *testing.T) (db *Reader, tenant string) {
	t.Helper()
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	call := func(id, tool string, state events.CallState) any {
		return events.Call{CallID: id, Tool: tool, State: state, Timeline: []events.TimelineEntry{}}
	}
	finding := func(id, rule string, s events.Severity, withdraws string) events.Finding {
		return events.Finding{FindingID: id, Rule: rule, Severity: s, EventIDs: []string{}, Retracts: withdraws}
	}
	enforced := func(f events.Finding) events.Finding { f.Enforced = true; return f }
	var rows []storage.EvidenceRow
	add := func(session, kind string, body any) {
		r := storagetest.RecordRow(t, shard, uint64(len(rows)+1), kind, body)
		r.Tenant, r.Session = shard, session
		r.BrokerTime = storagetest.Time.Add(time.Duration(r.Seq) * time.Minute)
		rows = append(rows, r)
	}
	add("s1", storage.KindCall, call("c1", "write_file", events.CallOpen))                                   // 1
	add("s1", storage.KindCall, call("c2", "bash", events.CallOpen))                                         // 2
	add("s1", storage.KindCall, call("c1", "write_file", events.CallCompleted))                              // 3
	add("s2", storage.KindCall, call("c3", "write_file", events.CallDenied))                                 // 4
	add("s1", storage.KindFinding, enforced(finding("f1", "missing_completion", events.SeverityMedium, ""))) // 5
	add("s2", storage.KindFinding, enforced(finding("f2", "executed_despite_deny", "critical", "")))         // 6
	add("s1", storage.KindFinding, finding("f3", "missing_completion", events.SeverityInfo, "f1"))           // 7
	add("s2-b", storage.KindControl, map[string]any{})                                                       // 8
	add("", storage.KindEvent, map[string]any{})                                                             // 9
	add("s1", storage.KindFinding, finding("f1-not", "missing_completion", events.SeverityMedium, ""))       // 10
	// None of these retracts f2.
	add("s2", storage.KindFinding, finding("f4", "executed_despite_deny", events.SeverityMedium, "f2")) // 11
	add("s2", storage.KindFinding, finding("f5", "quota_exceeded", events.SeverityInfo, "f2"))          // 12
	add("s2", storage.KindFinding, finding("f6", "executed_despite_deny", events.SeverityInfo, "f2"))   // 13
	rows[12].Subject = subject.Space{}.Finding(shard, "medium", "s2")                                   // as the admitter may publish it
	add("s2", storage.KindFinding, finding("f7", "executed_despite_deny", events.SeverityInfo, "f2"))   // 14
	next := rows[13]
	next.Shard = shard + "-next"
	if err := write.New(db.pool).CommitEvidence(t.Context(), []storage.EvidenceRow{next}); err != nil {
		t.Fatal(err)
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows[:13]); err != nil {
		t.Fatal(err)
	}
	return db, shard
}

func TestLatestCalls(t *testing.T) {
	db, tenant := viewed(t)
	for name, c := range map[string]struct {
		filter CallFilter
		want   []uint64
	}{
		"newest of each":             {CallFilter{}, []uint64{2, 3, 4}},
		"of a session":               {CallFilter{Session: "s1"}, []uint64{2, 3}},
		"by the state they are in":   {CallFilter{State: "open"}, []uint64{2}},
		"by tool":                    {CallFilter{Tool: "write_file"}, []uint64{3, 4}},
		"since":                      {CallFilter{Since: storagetest.Time.Add(3 * time.Minute)}, []uint64{3, 4}},
		"the newest of many":         {CallFilter{Limit: 1}, []uint64{4}},
		"none":                       {CallFilter{Tool: "' OR 1 = 1 --"}, nil},
		"all at once, and in order":  {CallFilter{Session: "s1", Limit: 2}, []uint64{2, 3}},
		"a moment after the newest":  {CallFilter{Since: storagetest.Time.Add(4*time.Minute + 1)}, nil},
		"exactly when it was stored": {CallFilter{Since: storagetest.Time.Add(4 * time.Minute)}, []uint64{4}},
	} {
		rows, err := db.LatestCalls(t.Context(), tenant, c.filter)
		if err != nil {
			t.Fatal(err)
		}
		var got []uint64
		for _, r := range rows {
			got = append(got, r.Seq)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	if rows, err := db.LatestCalls(t.Context(), "another tenant", CallFilter{}); len(rows) > 0 || err != nil {
		t.Errorf("another tenant's: %v %v", rows, err)
	}
}

func TestLatestFindings(t *testing.T) {
	db, tenant := viewed(t)
	for name, c := range map[string]struct {
		filter FindingFilter
		want   string
	}{
		"what stands":  {FindingFilter{}, "[6 10]"},
		"of a session": {FindingFilter{Session: "s2"}, "[6]"},
		"by rule":      {FindingFilter{Rule: "missing_completion"}, "[10]"},
		"by severity":  {FindingFilter{Severity: "critical"}, "[6]"},
		"or worse":     {FindingFilter{Severity: "medium"}, "[6 10]"},
		"worse alone":  {FindingFilter{Severity: "high"}, "[6]"},
		"since":        {FindingFilter{Since: storagetest.Time.Add(7 * time.Minute)}, "[10]"},
		"enforced":     {FindingFilter{Enforced: true}, "[6]"},
		"enforced, and taken back when it was not any more": {FindingFilter{Enforced: true, Retracted: true}, "[5! 6 7 11 13]"},
		"enforced, of a session":                            {FindingFilter{Enforced: true, Session: "s1"}, "[]"},
		"or worse, and what took them back":                 {FindingFilter{Severity: "medium", Retracted: true}, "[5! 6 7 10 11 13]"},
		"taken back, too":                                   {FindingFilter{Session: "s1", Retracted: true}, "[5! 7 10]"},
		"the newest of them":                                {FindingFilter{Retracted: true, Limit: 2}, "[13 14]"},
		"nobody's":                                          {FindingFilter{Session: "s9"}, "[]"},
		"not with a wildcard":                               {FindingFilter{Rule: "%"}, "[]"},
	} {
		rows, err := db.LatestFindings(t.Context(), tenant, c.filter)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{}
		for _, r := range rows {
			text := fmt.Sprint(r.Seq)
			if r.Retracted {
				text += "!"
			}
			got = append(got, text)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}

// TestFindingsOfTheLogAreListed: a finding without a tenant, such as log_recreated, is listed with those of
// every tenant.
func TestFindingsOfTheLogAreListed(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	r := storagetest.RecordRow(t, shard, 1, storage.KindFinding, events.Finding{FindingID: "f1", Rule: "log_recreated", Severity: events.SeverityCritical, EventIDs: []string{}})
	r.Tenant, r.Session = "", ""
	if err := write.New(db.pool).CommitEvidence(t.Context(), []storage.EvidenceRow{r}); err != nil {
		t.Fatal(err)
	}
	rows, err := db.LatestFindings(t.Context(), "acme", FindingFilter{Rule: "log_recreated", Severity: events.SeverityCritical})
	if err != nil || len(rows) != 1 || rows[0].Shard != shard {
		t.Errorf("%v, %v", rows, err)
	}
}

func TestWhatReplayAsks(t *testing.T) {
	db, shard := viewed(t)
	if names, err := db.SessionsWithPrefix(t.Context(), shard, "s2", 5); err != nil || fmt.Sprint(names) != "[s2 s2-b]" {
		t.Errorf("sessions %v %v", names, err)
	}
	if names, err := db.SessionsWithPrefix(t.Context(), shard, "%", 5); err != nil || len(names) > 0 {
		t.Errorf("sessions %v %v", names, err)
	}
	if last, n, err := read.New(db.pool).ShardExtent(t.Context(), shard); last != 13 || n != 13 || err != nil {
		t.Errorf("extent %d %d %v", last, n, err)
	}
	if seq, at, err := read.New(db.pool).FirstInput(t.Context(), shard, 1, storagetest.Time.Add(3*time.Minute)); seq != 8 || !at.Equal(storagetest.Time.Add(8*time.Minute)) || err != nil {
		t.Errorf("first input %d %v %v", seq, at, err)
	}
	if seq, _, err := read.New(db.pool).FirstInput(t.Context(), shard, 9, storagetest.Time); seq != 0 || err != nil {
		t.Errorf("first input %d %v", seq, err)
	}
	if rows := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
		return read.New(db.pool).ControlRecords(t.Context(), shard, 10, fn)
	}); len(rows) != 1 || rows[0].Seq != 8 {
		t.Errorf("controls %v", rows)
	}
	if rows := storagetest.Collect(t, func(fn func(storage.EvidenceRow) error) error {
		return read.New(db.pool).EventsOf(t.Context(), shard, shard, "tool", 10, fn)
	}); len(rows) != 1 || rows[0].Seq != 9 {
		t.Errorf("events %v", rows)
	}
}

func TestLatestVerdicts(t *testing.T) {
	db, shard := New(enginetest.Pool(t)), storagetest.Shard(t)
	var rows []storage.EvidenceRow
	for i, d := range []events.Decision{
		{DecisionID: "1", Source: "rt1", ToolCallID: "c1", Verdict: events.Ask},
		{DecisionID: "2", Source: "rt2", ToolCallID: "c1", Verdict: events.Deny},
		{DecisionID: "3", Source: "rt1", ToolCallID: "c1", Verdict: events.Allow},
		{DecisionID: "4", Source: "rt1", Tool: "pay", EventID: "e4", Verdict: events.Ask},
		{DecisionID: "5", Source: "rt1", Tool: "read", EventID: "e5", Verdict: events.Allow},
	} {
		r := storagetest.RecordRow(t, shard, uint64(i+1), storage.KindDecision, d)
		r.Tenant, r.Session = shard, "s'1"
		rows = append(rows, r)
	}
	if err := write.New(db.pool).CommitEvidence(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	got, err := db.LatestVerdicts(t.Context(), shard, []string{"s'1", "s2"})
	if err != nil || len(got) != 4 || got[CallKey{"s'1", "rt1", "c1", "", ""}] != (Verdict{"allow", shard, 3}) || got[CallKey{"s'1", "rt2", "c1", "", ""}] != (Verdict{"deny", shard, 2}) ||
		got[CallKey{"s'1", "rt1", "", "pay", "e4"}] != (Verdict{"ask", shard, 4}) {
		t.Errorf("%v %v", got, err)
	}
}
