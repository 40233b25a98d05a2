package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// pageQuestion is one of docs/reference/questions.md: what a reader of the page would run.
type pageQuestion struct{ name, statement string }

var questionBlock = regexp.MustCompile("(?s)## \\d+\\. [^\n]+\n\n`countersign audit ask ([a-z-]+)`.*?```sql\n(.*?)\n```")

func questions(t testing.TB) (list []pageQuestion) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "reference", "questions.md"))
	ok(t, err)
	for _, m := range questionBlock.FindAllStringSubmatch(string(text), -1) {
		list = append(list, pageQuestion{m[1], m[2]})
	}
	if len(list) != 10 {
		t.Fatalf("the page has %d questions", len(list))
	}
	return list
}

// asked runs the tool and gives the rows of the answer.
func (s *system) asked(t testing.TB, name string, flags ...string) (rows []object) {
	t.Helper()
	r := s.run(t, append([]string{"audit", "ask", name, "--json"}, flags...)...).want(t, 0)
	for line := range strings.Lines(r.out) {
		var o object
		ok(t, json.Unmarshal([]byte(line), &o))
		rows = append(rows, o)
	}
	return rows
}

// saga makes a system whose evidence answers every question, and returns the flags that each
// question needs.
func saga(t *testing.T, s *system) (flags map[string][]string) {
	t.Helper()
	r := s.runtime(t)
	const sess, mandate = "s-audited", "aump_mnd_e2e_audited"
	m := shopping(mandate)
	s.run(t, "mandate", "put", mandateFile(t, m)).want(t, 0)
	eventually(t, "the mandate counts", func() error {
		a := r.admit(t, "aump", underMandate(mandate, mandateHash(m), purchase(250)), "Countersign-Session", sess, "Countersign-Tool-Call-Id", "c-paid")
		if a.verdict != "allow" {
			return fmt.Errorf("%s: %s", a.verdict, a.msg.Data)
		}
		return nil
	})
	allowed := allowedCall(sess, "c-allowed").with("tool_input.content", "write to dana@acme.example")
	a := r.admit(t, "agenthook", allowed.bytes())
	r.publish(t, allowed)
	r.publish(t, postToolUse(allowed))
	denied := deniedCall(sess, "c-denied")
	r.admit(t, "agenthook", denied.bytes())
	r.publish(t, denied)
	r.publish(t, postToolUse(denied))
	never := allowedCall(sess, "c-never-asked")
	r.publish(t, never)
	r.publish(t, postToolUse(never))
	r.verdicts(t, "ask", askedCall(sess, "c-waits"))
	r.verdicts(t, "ask", askedCall("s-unnamed", "1").with("metadata", object{})) // two calls without an id
	r.verdicts(t, "allow", allowedCall("s-unnamed", "2").with("metadata", object{}))
	approved, _ := r.verdicts(t, "ask", askedCall(sess, "c-approved"))
	digest := s.review(t, 0, "show", approved).text("workflow.preview_digest")
	s.review(t, 0, "approve", approved, "--preview-digest", digest, "--reason", "press office agrees")
	r.put(t, r.subject("agenthook", sess, "unknown"), []byte("{not json"))
	s.settle(t)
	return map[string][]string{
		"agent": {"--agent", r.publisher, "--since", "1h"}, "approved": {"--id", "c-approved"}, "no-verdict": {"--since", "1h"}, "despite-no": {"--since", "1h"},
		"policy": {"--id", a.msg.Header.Get("Countersign-Decision-Id")}, "changes": {"--since", "1h"}, "redacted": {"--session", sess},
		"mandate": {"--id", "c-paid"}, "undecided": {"--since", "1h"},
	}
}

// What the answers say of the saga: some row has a cell with this text.
var sagaAnswers = map[string][]string{
	"agent":      {"c-allowed", "c-denied", "c-waits", "c-approved"},
	"approved":   {"press office agrees", "approved"},
	"no-verdict": {"c-never-asked"},
	"despite-no": {"executed_despite_deny", "c-denied"},
	"policy":     {"kind: AdmissionPolicy", "write_file"},
	"changes":    {"policy", "mandate", "put aump_mnd_e2e_audited"},
	"missing":    {"GOV@"},
	"redacted":   {"/body/tool_input/content", "not_json"},
	"mandate":    {"aump_mnd_e2e_audited", "c-paid"},
	"undecided":  {"c-waits", "pending", "ask", "s-unnamed"},
}

// Every question of the page has an answer: the tool's, and the same by the
// statement that the page shows, as the auditors' user.
func TestAuditorsQuestions(t *testing.T) {
	t.Parallel()
	s := start(t)
	flags := saga(t, s)
	db := s.auditors(t)
	for _, q := range questions(t) {
		t.Run(q.name, func(t *testing.T) {
			rows := s.asked(t, q.name, flags[q.name]...)
			text := ""
			for _, r := range rows {
				text += string(r.bytes()) + "\n"
			}
			for _, want := range sagaAnswers[q.name] {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in the answer:\n%s", want, text)
				}
			}
			n := number(t, db, "SELECT count() FROM ("+q.statement+")", parameters(flags[q.name])...)
			if int(n) != len(rows) {
				t.Errorf("the page's statement gives %d rows, the tool %d", n, len(rows))
			}
			if people := s.run(t, append([]string{"audit", "ask", q.name}, flags[q.name]...)...).want(t, 0); !strings.Contains(people.out, "shard") {
				t.Errorf("for people: %s", people.out)
			}
		})
	}
	for _, r := range s.asked(t, "undecided", flags["undecided"]...) {
		if r.text("session") == "s-unnamed" && (r.text("tool") != "send_email" || r.text("verdict") != "ask") {
			t.Errorf("undecided: %s", r.bytes())
		}
	}
	unnamed := s.run(t, "calls", "--session", "s-unnamed").want(t, 0)
	for line := range strings.Lines(unnamed.out) {
		if strings.Contains(line, "send_email") && !strings.Contains(line, " ask ") || strings.Contains(line, "write_file") && !strings.Contains(line, " allow ") {
			t.Errorf("calls without an id: %s", unnamed.out)
		}
	}
	missing := s.asked(t, "missing")[0]
	for _, column := range []string{"missing", "doubled", "broken_sessions"} {
		if missing[column] != 0.0 {
			t.Errorf("%s is %v", column, missing[column])
		}
	}
	first := s.run(t, append([]string{"audit", "ask", "agent", "--json", "--limit", "1"}, flags["agent"]...)...).want(t, 0)
	if strings.Count(first.out, "\n") != 1 || !strings.Contains(first.err, "there are more") {
		t.Errorf("one row of several: %s%s", first.out, first.err)
	}
	if all, some := s.asked(t, "agent", append([]string{"--limit", "0"}, flags["agent"]...)...), s.asked(t, "agent", flags["agent"]...); len(all) != len(some) {
		t.Errorf("%d rows without a limit, %d with the usual one", len(all), len(some))
	}
	s.run(t, "audit", "ask", "approved").want(t, 2).oneLine(t, "--id")
	s.run(t, "audit", "ask", "missing", "--agent", "x").want(t, 2).oneLine(t, "--agent")
	s.run(t, "audit", "ask", "who").want(t, 2).oneLine(t, "audit questions")
}

// parameters are what a client gives a statement of the page.
func parameters(flags []string) []any {
	values := map[string]string{"tenant": "acme", "most": "1000", "session": ""}
	for i := 0; i+1 < len(flags); i += 2 {
		values[strings.TrimPrefix(flags[i], "--")] = flags[i+1]
	}
	values["since"], values["until"] = "2020-01-01 00:00:00.000", "2200-01-01 00:00:00.000"
	var args []any
	for name, v := range values {
		args = append(args, clickhouse.Named(name, v))
	}
	return args
}

// An auditor of one tenant gets answers and proofs of that tenant and nothing else.
func TestAuditorOfOneTenant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	flags := saga(t, s)
	grant := func(tenant, user string) string {
		r := tool(t, "audit", "grant", "--data-dir", s.data, "--tenant", tenant, "--user", user).want(t, 0)
		if !strings.Contains(r.err, "next start") {
			t.Errorf("it does not say when it counts: %s", r.err)
		}
		return strings.TrimSpace(r.out)
	}
	dsn, others := grant("acme", "ann_of_acme"), grant("globex", "gus_of_globex")
	before := map[string]int{}
	for _, q := range questions(t) {
		before[q.name] = len(s.asked(t, q.name, flags[q.name]...))
	}
	ok(t, s.stop())
	s = startIn(t, dir)
	_, address, _ := strings.Cut(s.info(t).ClickHouseDSN, "@")
	host, _, _ := strings.Cut(address, "/")
	dsn, others = strings.Replace(dsn, "127.0.0.1:PORT", host, 1), strings.Replace(others, "127.0.0.1:PORT", host, 1)
	as := func(dsn string, args ...string) result {
		return tool(t, append(args, "--clickhouse", dsn)...)
	}
	for _, q := range questions(t) {
		r := as(dsn, append([]string{"audit", "ask", q.name, "--json", "--tenant", "acme"}, flags[q.name]...)...).want(t, 0)
		n := strings.Count(r.out, "\n")
		if all := q.name != "changes" && q.name != "policy"; all && n != before[q.name] && q.name != "missing" || n > before[q.name]+3 {
			t.Errorf("%s: %d rows, and %d for who may see everything", q.name, n, before[q.name])
		}
		if r := as(others, append([]string{"audit", "ask", q.name, "--json", "--tenant", "acme"}, flags[q.name]...)...).want(t, 0); q.name != "missing" && r.out != "" {
			t.Errorf("%s: the other tenant's auditor reads %s", q.name, r.out)
		}
	}
	for _, name := range []string{"changes", "policy"} {
		r := as(dsn, append([]string{"audit", "ask", name, "--tenant", "acme"}, flags[name]...)...).want(t, 0)
		if !strings.Contains(r.err, "one tenant is not shown") || strings.Contains(r.out, "1970") {
			t.Errorf("%s does not say what it lacks: %s%s", name, r.out, r.err)
		}
	}
	as(dsn, "verify", "--tenant", "acme", "--session", "s-audited", "--key", s.info(t).PublicKey).want(t, 0)
	as(dsn, "verify", "--tenant", "acme", "--key", s.info(t).PublicKey).want(t, 2).oneLine(t, "one tenant's records")
	if r := as(dsn, "chain", "--tenant", "acme", "--session", "s-audited").want(t, 0); !strings.Contains(r.out, "c-") && !strings.Contains(r.out, "write_file") {
		t.Errorf("chain: %s", r.out)
	}
	if r := as(others, "chain", "--tenant", "acme", "--session", "s-audited"); r.code == 0 {
		t.Errorf("the other tenant's auditor reads the chain: %s", r.out)
	}
	gus := openClickHouse(t, others)
	for _, statement := range []string{
		"SELECT * FROM countersign.evidence", "SELECT * FROM mergeTreeIndex(countersign, record_fields)", "SELECT * FROM system.parts", "SET max_execution_time = 100000",
	} {
		if err := gus.Exec(context.Background(), statement); err == nil {
			t.Errorf("%s was done", statement)
		}
	}
	if n := number(t, gus, "SELECT count() FROM decisions"); n != 0 {
		t.Errorf("the other tenant's auditor sees %d decisions", n)
	}
	// Taken back, it is over with the next start.
	tool(t, "audit", "revoke", "--data-dir", s.data, "--user", "ann_of_acme").want(t, 0)
	if r := tool(t, "audit", "auditors", "--data-dir", s.data).want(t, 0); strings.Contains(r.out, "ann_of_acme") || !strings.Contains(r.out, "gus_of_globex") {
		t.Errorf("auditors: %s", r.out)
	}
	ok(t, s.stop())
	s = startIn(t, dir)
	_, address, _ = strings.Cut(s.info(t).ClickHouseDSN, "@")
	now, _, _ := strings.Cut(address, "/")
	if r := as(strings.Replace(dsn, host, now, 1), "audit", "ask", "missing", "--tenant", "acme"); r.code == 0 {
		t.Error("a revoked auditor still reads")
	}
	s.exact(t)
}
