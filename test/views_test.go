package e2e_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// played is a session with an allowed call that ran as admitted, a denied one that
// ran all the same, and one that waits for a reviewer.
func played(t *testing.T, s *system, sess string) {
	t.Helper()
	r := s.runtime(t)
	good, bad, asked := allowedCall(sess, "call-good"), deniedCall(sess, "call-bad"), askedCall(sess, "call-asked")
	r.admit(t, "agenthook", good.bytes())
	r.publish(t, good)
	r.publish(t, postToolUse(good))
	r.admit(t, "agenthook", bad.bytes())
	r.publish(t, bad)
	r.publish(t, postToolUse(bad))
	r.admit(t, "agenthook", asked.bytes())
	r.publish(t, asked)
	s.settle(t)
}

// byText finds the object that has a value at a path.
func byText(t *testing.T, list []object, path, value string) object {
	t.Helper()
	for _, o := range list {
		if member(o, path) == value {
			return o
		}
	}
	t.Fatalf("none has %s = %s: %v", path, value, list)
	return nil
}

// What a session was can be listed, told and correlated again; all of it from the
// same records.
func TestViews(t *testing.T) {
	s := shared(t)
	const sess = "s-views-1"
	played(t, s, sess)

	calls := jsonLines(t, s.run(t, "calls", "--session", sess, "--json").want(t, 0).out)
	if len(calls) != 3 {
		t.Fatalf("calls: %v", calls)
	}
	good, bad, asked := byText(t, calls, "call.tool_call_id", "call-good"), byText(t, calls, "call.tool_call_id", "call-bad"), byText(t, calls, "call.tool_call_id", "call-asked")
	if member(good, "call.state") != "completed" || member(good, "call.verdict") != "allow" || member(good, "call.match") != "equal" ||
		member(good, "decided_seconds") == "" || member(good, "ran_seconds") == "" {
		t.Errorf("the allowed call: %v", good)
	}
	if member(bad, "call.verdict") != "deny" || member(asked, "call.state") != "open" || member(asked, "verdict_so_far") != "ask" {
		t.Errorf("the others: %v %v", bad, asked)
	}
	open := jsonLines(t, s.run(t, "calls", "--session", sess, "--state", "open", "--json").want(t, 0).out)
	if len(open) != 1 || member(open[0], "call.tool_call_id") != "call-asked" {
		t.Errorf("open calls: %v", open)
	}
	cut := s.run(t, "calls", "--session", sess, "--limit", "1", "--json").want(t, 0)
	if strings.Count(cut.out, "\n") != 1 || !json.Valid([]byte(cut.out)) || !strings.Contains(cut.err, "note: the newest 1 call; there are more (--limit, --since)") {
		t.Errorf("%s%s", cut.out, cut.err)
	}
	if out := s.run(t, "calls", "--session", sess, "--limit", "1").want(t, 0).out; !strings.Contains(out, "the newest 1 call; there are more") {
		t.Errorf("calls: %s", out)
	}

	findings := jsonLines(t, s.run(t, "findings", "--session", sess, "--rule", "executed_despite_deny", "--json").want(t, 0).out)
	if len(findings) != 1 || member(findings[0], "finding.tool_call_id") != "call-bad" || member(findings[0], "withdrawn") != "false" {
		t.Fatalf("findings: %v", findings)
	}
	if out := s.run(t, "findings", "--session", sess, "--severity", "critical").want(t, 0).out; !strings.Contains(out, "executed_despite_deny") || !strings.Contains(out, "Stop this runtime") {
		t.Errorf("findings: %s", out)
	}

	timeline(t, s, sess, findings[0])
	s.run(t, "session", "s-views").want(t, 1).oneLine(t, "no record of this session", `did you mean "s-views-1"?`)
	s.run(t, "session", "zzz-nobody").want(t, 1).oneLine(t, "no record of this session", "countersign doctor")
	s.run(t, "calls", "--session", "zzz-nobody").want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "findings", "--session", "zzz-nobody").want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "replay", "--session", "zzz-nobody").want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "replay", "--session", "s-views", "--from", "clickhouse").want(t, 1).oneLine(t, "did you mean")
	if r := s.run(t, "findings", "--session", "s-views-1", "--rule", "missing_completion").want(t, 0); !strings.Contains(r.out, "0 findings") {
		t.Errorf("nothing found: %s", r.out)
	}
}

// timeline holds the session's timeline against its evidence: every record, in
// order, nothing unredacted.
func timeline(t *testing.T, s *system, sess string, finding object) {
	t.Helper()
	rows := session(t, s.auditors(t), sess)
	steps := jsonLines(t, s.run(t, "session", sess, "--json").want(t, 0).out)
	if len(steps) != len(rows) {
		t.Fatalf("%d steps of %d records", len(steps), len(rows))
	}
	out := s.run(t, "session", sess).want(t, 0).out
	if strings.Contains(out, "\x1b") {
		t.Error("there are colours, and no terminal")
	}
	at := 0
	for i, row := range rows {
		if member(steps[i], "seq") != strconv.FormatUint(row.Seq, 10) || member(steps[i], "kind") != row.Kind || member(steps[i], "session_index") != strconv.Itoa(i+1) {
			t.Errorf("step %d is %v, the record %d", i, steps[i], row.Seq)
		}
		line := regexp.MustCompile(`(?m)^ +` + strconv.FormatUint(row.Seq, 10) + ` .*` + row.Kind)
		found := line.FindStringIndex(out[at:])
		if found == nil {
			t.Fatalf("record %d, %s, is not in the timeline, or out of order:\n%s", row.Seq, row.Kind, out)
		}
		at += found[1]
	}
	for _, want := range []string{"allow", "deny", "ask", "pending", "call-bad", "executed_despite_deny", "do: Stop this runtime", "redacted: email", "completed", "before it was said to have run"} {
		if !strings.Contains(out, want) {
			t.Errorf("the timeline does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "press@newspaper.example") || !strings.Contains(out, "proved by "+seqsOf(finding)) {
		t.Errorf("the timeline:\n%s", out)
	}
}

func seqsOf(finding object) string {
	list := finding["finding"].(map[string]any)["seqs"].([]any)
	var texts []string
	for _, v := range list {
		texts = append(texts, strconv.FormatFloat(v.(float64), 'f', -1, 64))
	}
	return strings.Join(texts, ", ")
}

// replays runs a replay and gives its report.
func replays(t *testing.T, s *system, code int, args ...string) object {
	t.Helper()
	return jsonLines(t, s.run(t, append([]string{"replay", "--json"}, args...)...).want(t, code).out)[0]
}

// A session comes out of its own messages as it was recorded; what was taken out
// of the evidence, or put into it, is told.
func TestReplay(t *testing.T) {
	t.Parallel()
	s := start(t)
	const sess, quiet = "s-replay", "s-replay-quiet"
	played(t, s, sess)
	r := s.runtime(t)
	for _, call := range []string{"c1", "c2"} { // nothing in it is redacted
		e := allowedCall(quiet, call)
		r.admit(t, "agenthook", e.bytes())
		r.publish(t, e)
		r.publish(t, postToolUse(e))
	}
	aaep := aaepSession("replay")
	r.publish(t, invoked(aaep, "call_1", "find_flights"))
	r.publish(t, completed(aaep, "call_1", "find_flights"))
	s.settle(t)

	keys := []string{"--keys", filepath.Join(s.data, "keys")} // the rest is known from the data directory
	for i, name := range []string{sess, quiet, aaep} {
		for j, from := range [][]string{{"--from", "log"}, {"--from", "log", "--whole"}, {"--from", "clickhouse"}, {"--from", "clickhouse", "--whole"}} {
			for k, key := range [][]string{nil, keys} {
				if (i+j+k)%2 == 1 && !longSweeps { // each source is read with and without the key
					continue
				}
				args := slices.Concat([]string{"--session", name}, from, key)
				rep := replays(t, s, 0, args...)
				if member(rep, "same") != "true" || member(rep, "recorded.calls") != member(rep, "replayed.calls") || member(rep, "recorded.calls") == "0" || member(rep, "not_recorded_yet") != "0" {
					t.Errorf("%v: %v", args, rep)
				}
				// With the key and nothing hidden there is nothing that cannot be compared.
				exact := key != nil && (from[1] == "log" || name != sess && len(from) == 2)
				if n := len(rep["inconclusive"].([]any)); exact && n > 0 {
					t.Errorf("%v: %d inconclusive: %v", args, n, rep)
				}
			}
		}
	}
	s.run(t, append([]string{"replay", "--session", sess, "--strict"}, keys...)...).want(t, 0)
	s.run(t, "replay", "--session", sess, "--strict", "--from", "clickhouse").want(t, 1)

	db := s.owner(t)
	if n := number(t, db, "SELECT count() FROM evidence WHERE session = ? AND kind = 'finding'", sess); n == 0 {
		t.Fatal("there is no finding to delete")
	}
	change(t, db, "ALTER TABLE evidence DELETE WHERE session = ? AND kind = 'finding'", sess)
	if got := s.run(t, "replay", "--session", sess, "--from", "clickhouse").want(t, 1); got.out+got.err == "" {
		t.Error("after findings were deleted replay says nothing")
	}
	if out := s.run(t, "session", sess).want(t, 0).out; !strings.Contains(out, "of this session missing here: run countersign verify") {
		t.Errorf("the timeline does not say that records are missing:\n%s", out)
	}
	replays(t, s, 0, "--session", sess) // the log has them
}

// scraped reads metrics: types by family, values by sample.
func scraped(t *testing.T, url string) (types map[string]string, values map[string]float64) {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	ok(t, err)
	defer res.Body.Close()
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%s %v", res.Status, res.Header)
	}
	types, values = map[string]string{}, map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		line := lines.Text()
		if f := strings.Fields(line); strings.HasPrefix(line, "# TYPE ") {
			types[f[2]] = f[3]
		} else if !strings.HasPrefix(line, "#") {
			i := strings.LastIndex(line, " ")
			v, err := strconv.ParseFloat(line[i+1:], 64)
			ok(t, err)
			values[line[:i]] = v
		}
	}
	return types, values
}

// Every service counts what it does, and the endpoint of up shows all of it;
// nothing that a publisher chose is in it.
func TestMetrics(t *testing.T) {
	s := shared(t)
	url := s.info(t).HTTPURL
	types, before := scraped(t, url)
	for name, want := range map[string]string{
		"countersign_healthy": "gauge", "countersign_service_up": "gauge", "countersign_active": "gauge", "countersign_gateway_tokens_ending": "gauge",
		"countersign_admissions_total": "counter", "countersign_admission_seconds": "histogram", "countersign_admission_record_seconds": "histogram",
		"countersign_admissions_refused_total": "counter", "countersign_admissions_inflight": "gauge", "countersign_policy_revision": "gauge",
		"countersign_policy_snapshot_age_seconds": "gauge", "countersign_correlator_open_calls": "gauge", "countersign_correlator_lag_messages": "gauge",
		"countersign_correlator_lag_seconds": "gauge", "countersign_findings_total": "counter", "countersign_correlator_oldest_undecided_seconds": "gauge",
		"countersign_evidence_records_total": "counter", "countersign_evidence_insert_seconds": "histogram", "countersign_evidence_batch_records": "histogram",
		"countersign_evidence_redactions_total": "counter", "countersign_evidence_oldest_unaudited_seconds": "gauge", "evidence_lost_total": "counter",
		"countersign_evidence_quarantined_total": "counter", "countersign_evidence_checkpoints_total": "counter",
	} {
		if types[name] != want {
			t.Errorf("%s is %q, want a %s", name, types[name], want)
		}
	}
	const sess = "s-metrics-evil"
	played(t, s, sess)
	r := s.runtime(t)
	r.put(t, r.subject("agenthook", sess, "evil-type"), []byte(`{"evil`))
	r.admit(t, "evil-protocol", []byte(`{}`))
	s.settle(t)
	_, after := scraped(t, url)
	for sample, least := range map[string]float64{
		`countersign_admissions_total{protocol="agenthook",service="admitter",verdict="allow"}`:                         1,
		`countersign_admissions_total{protocol="agenthook",service="admitter",verdict="deny"}`:                          1,
		`countersign_admissions_total{protocol="agenthook",service="admitter",verdict="ask"}`:                           1,
		`countersign_admissions_total{protocol="other",service="admitter",verdict="deny"}`:                              1,
		`countersign_admission_seconds_count{service="admitter"}`:                                                       4,
		`countersign_admission_decide_seconds_count{service="admitter"}`:                                                4,
		`countersign_findings_total{rule="executed_despite_deny",service="correlator",severity="critical",shard="GOV"}`: 1,
		`countersign_calls_total{service="correlator",shard="GOV",state="completed"}`:                                   1,
		`countersign_evidence_records_total{kind="decision",service="auditor",shard="GOV"}`:                             4,
		`countersign_evidence_redactions_total{detector="email",service="auditor",shard="GOV"}`:                         1,
		`countersign_evidence_quarantined_total{service="auditor",shard="GOV"}`:                                         1,
		`countersign_evidence_checkpoints_total{service="auditor",shard="GOV"}`:                                         1,
		`countersign_correlator_messages_total{service="correlator",shard="GOV"}`:                                       20,
		`countersign_correlator_outputs_total{service="correlator",shard="GOV"}`:                                        5,
		`countersign_evidence_bytes_total{service="auditor",shard="GOV"}`:                                               1000,
		`countersign_evidence_insert_seconds_count{service="auditor",shard="GOV"}`:                                      1,
		`countersign_admission_record_seconds_bucket{service="admitter",le="+Inf"}`:                                     4,
	} {
		if got := after[sample] - before[sample]; got < least {
			t.Errorf("%s moved by %v, want at least %v", sample, got, least)
		}
	}
	if open := after[`countersign_correlator_open_calls{service="correlator",shard="GOV"}`]; open < 1 {
		t.Errorf("%v open calls", open)
	}
	if lost, there := after[`evidence_lost_total{service="auditor",shard="GOV"}`]; lost != 0 || !there {
		t.Errorf("evidence lost: %v %v", lost, there)
	}
	for _, sample := range []string{`countersign_healthy{service="admitter"}`, `countersign_ready{service="correlator"}`, `countersign_active{service="auditor",shard="GOV"}`,
		`countersign_policy_usable{service="admitter"}`, `countersign_service_up{service="correlator"}`} {
		if after[sample] != 1 {
			t.Errorf("%s = %v", sample, after[sample])
		}
	}
	for sample := range after {
		for _, word := range []string{"evil", "call-", sess, "acme", "write_file"} {
			if strings.Contains(sample, word) {
				t.Errorf("a publisher's word is in %s", sample)
			}
		}
	}
}

// The health of the whole says of every service how it is and in which role, and
// which one is not well.
func TestHealthNamesTheService(t *testing.T) {
	s := shared(t)
	report := func() (status int, o object) {
		res, err := http.Get(s.info(t).HTTPURL + "/healthz")
		ok(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		ok(t, err)
		ok(t, json.Unmarshal(b, &o))
		return res.StatusCode, o
	}
	status, o := report()
	if status != 200 || member(o, "services.correlator.role") != "active" || member(o, "services.auditor.role") != "active" || member(o, "services.admitter.status") != "ok" {
		t.Errorf("%d %v", status, o)
	}
	release := s.holdDown(t, "auditor")
	eventually(t, "the auditor is said to be unwell", func() error {
		status, o := report()
		if status != 503 || member(o, "services.auditor.status") != "unhealthy" || object(o["problems"].(map[string]any))["auditor/process"] == nil || member(o, "services.admitter.status") != "ok" {
			return errorf("%d %v", status, o)
		}
		return nil
	})
	if _, values := scraped(t, s.info(t).HTTPURL); values[`countersign_service_up{service="auditor"}`] != 0 || values[`countersign_service_up{service="admitter"}`] != 1 {
		t.Errorf("service_up: %v", values)
	}
	release()
	eventually(t, "all is well again", func() error {
		if status, o := report(); status != 200 {
			return errorf("%d %v", status, o)
		}
		return nil
	})
	// A killed service comes back, on another port perhaps, and is found there.
	ok(t, syscall.Kill(s.info(t).PIDs["correlator"], syscall.SIGKILL))
	eventually(t, "the new correlator is scraped", func() error {
		if _, values := scraped(t, s.info(t).HTTPURL); values[`countersign_ready{service="correlator"}`] != 1 || values[`countersign_service_up{service="correlator"}`] != 1 {
			return errorf("not yet")
		}
		return nil
	})
	if _, err := os.Stat(s.ready); err != nil {
		t.Error(err)
	}
}

// A session may have a name that is too long for a subject. It is found by that
// name, and by what stands for it in the records.
func TestLongSessionName(t *testing.T) {
	s := shared(t)
	r := s.runtime(t)
	name := "s-" + strings.Repeat("long-", 20)
	call := allowedCall(name, "call-1")
	allow(t, r, call, "allow")
	r.publish(t, postToolUse(call))
	s.settle(t)
	sum := sha256.Sum256([]byte(name))
	for _, session := range []string{name, "~h" + hex.EncodeToString(sum[:])} {
		for _, args := range [][]string{
			{"session", session}, {"calls", "--session", session}, {"findings", "--session", session}, {"chain", "--session", session},
			{"replay", "--session", session}, {"replay", "--session", session, "--from", "clickhouse"}, {"verify", "--session", session},
			{"conformance", "--profile", "bronze", "--session", session}, {"tail", "--since", "24h", "--count", "1", "--session", session},
		} {
			s.run(t, args...).want(t, 0)
		}
		if got := jsonLines(t, s.run(t, "calls", "--session", session, "--json").want(t, 0).out); len(got) != 1 || member(got[0], "call.session") != name {
			t.Errorf("calls of %s: %v", session, got)
		}
	}
	s.run(t, "session", name+"x").want(t, 1).oneLine(t, "no record of this session")
}
