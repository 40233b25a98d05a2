package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// problems are the problems of the whole system, by component.
func problems(t testing.TB, s *system) (list map[string]string, healthy bool) {
	t.Helper()
	code, body := health(t, s)
	var report struct{ Problems map[string]string }
	ok(t, json.Unmarshal([]byte(body), &report))
	return report.Problems, code == http.StatusOK
}

// TestUpWithoutAnAuditor: an auditor that refuses to go on takes nothing else down, and the commands of
// docs/operating.md repair it while `up` runs. But nothing is written to a log that
// lost messages.
func TestUpWithoutAnAuditor(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startIn(t, dir)
	admits := func(id string) string {
		t.Helper()
		return s.runtime(t).admit(t, "agenthook", allowedCall("s-refused", id).bytes()).verdict
	}
	if got := admits("c1"); got != "allow" {
		t.Fatal(got)
	}
	s.exact(t)
	signed(t, s)
	db := s.owner(t)
	decision := number(t, db, "SELECT max(seq) FROM evidence WHERE kind = 'decision'")
	change(t, db, "ALTER TABLE evidence DELETE WHERE seq >= ?", decision)
	ok(t, s.stop())
	older := filepath.Join(dir, "older")
	ok(t, os.CopyFS(older, os.DirFS(filepath.Join(s.data, "nats"))))

	s = startIn(t, dir)
	if list, _ := problems(t, s); !strings.Contains(list["auditor/process"], "no auditor had an intent for") || !strings.Contains(list["auditor/process"], "countersign audit cut") || len(list) != 1 {
		t.Errorf("an auditor that finds rows of others: %v", list)
	}
	out := s.run(t, "doctor", "--json").want(t, 1).out
	for _, want := range []string{`{"check":"auditor","level":"unsafe","detail":"none is listening`, `{"check":"evidence","level":"unsafe","detail":"a checkpoint of `} {
		if !strings.Contains(out, want) {
			t.Errorf("the doctor does not say %s:\n%s", want, out)
		}
	}
	if got := admits("c2"); got != "allow" {
		t.Errorf("without an auditor: %s", got)
	}
	const other = "countersign.dev/checkpoint+365f81ae+AYqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c" // of another system
	s.run(t, "audit", "cut", "--yes", "--key", other).want(t, 1).oneLine(t, "it is another system's")
	command(t, exec.Command(program("countersign"), "audit", "cut", "--yes"), "COUNTERSIGN_READY_FILE="+s.ready, "COUNTERSIGN_PUBLIC_KEY="+other).want(t, 2).oneLine(t, "unset the variable")
	var cut object
	ok(t, json.Unmarshal([]byte(s.run(t, "audit", "cut", "--yes", "--json").want(t, 0).out), &cut))
	if done, _ := cut["cut"].(bool); !done || cut["records"] == 0.0 {
		t.Errorf("the cut for programs: %v", cut)
	}
	eventually(t, "the auditor goes on", func() error {
		if list, healthy := problems(t, s); !healthy {
			return errorf("%v", list)
		}
		return nil
	})
	s.exact(t)
	s.verified(t, 0)

	ok(t, s.stop())
	ok(t, os.RemoveAll(filepath.Join(s.data, "nats")))
	ok(t, os.Rename(older, filepath.Join(s.data, "nats")))
	begin := time.Now()
	s = startIn(t, dir)
	list, _ := problems(t, s)
	for component, problem := range map[string]string{"auditor/process": "the log holds less than the evidence", "admitter/process": "stopped", "correlator/process": "stopped"} {
		if !strings.Contains(list[component], problem) {
			t.Errorf("%s: %v", component, list)
		}
	}
	if r := s.run(t, "admit", "--protocol", "agenthook", root+"/examples/requests/pre-tool-use.json"); r.code != 1 {
		t.Errorf("a request is answered: exit %d %s%s", r.code, r.out, r.err)
	}
	s.run(t, "verify").want(t, 0) // the evidence is whole
	for _, shows := range []string{"policy show", "retention show", "redaction show", "publisher list", "mandate list", "rules switches", "witness list", "token list"} {
		s.run(t, strings.Fields(shows)...).want(t, 0) // before a new log is begun
	}
	operator := s.connect(t, "operator")
	last, err := message(operator, "GOV", object{"seq": lastSeq(t, operator)})
	ok(t, err)
	if !last.Time.Before(begin) {
		t.Errorf("the start has written %s", last.Subject)
	}

	// The NATS server of a new log has nothing to compare the old evidence with.
	shard := evidence(t, s.owner(t), "seq = 1")[0].Shard
	ok(t, s.stop())
	ok(t, os.RemoveAll(filepath.Join(s.data, "nats")))
	ok(t, os.RemoveAll(filepath.Join(s.data, "state")))
	s = startIn(t, dir)
	if r := s.verified(t, 0, "--shard", shard); !strings.Contains(r.out, "NOT compared with the published checkpoints and the log") {
		t.Errorf("%s", r.out)
	}
}
