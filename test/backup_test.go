package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupLines: the lines of docs/operating.md that back up and restore. The service runs again whatever becomes of
// the copy, and each copy is whole and apart from the others.
func TestBackupLines(t *testing.T) {
	t.Parallel()
	var scripts []string
	for _, b := range readBlocks(t, "docs/operating.md") {
		if b.section != "Backup and restore" {
			continue
		}
		var lines []string
		for _, l := range b.lines {
			lines = append(lines, l.text)
		}
		scripts = append(scripts, strings.Join(lines, "\n"))
	}
	if len(scripts) != 2 {
		t.Fatalf("the section has %d blocks", len(scripts))
	}
	dir := t.TempDir()
	data, backups := filepath.Join(dir, "data"), filepath.Join(dir, "backups")
	ok(t, os.MkdirAll(filepath.Join(data, "nats"), 0o700))
	ok(t, os.Mkdir(backups, 0o700))
	at := "2026-11-27T020000"
	const started = "start countersign\n"
	runs := func(script, then string) {
		t.Helper()
		calls := filepath.Join(t.TempDir(), "calls")
		script = strings.NewReplacer("/var/lib/countersign", data, "/backup/", backups+"/").Replace(script)
		cmd := exec.Command("bash", "-c", "systemctl() { echo $* >> "+calls+"; }; date() { echo "+at+"; }\n"+script)
		out, _ := cmd.CombinedOutput()
		if told, _ := os.ReadFile(calls); string(told) != "stop countersign\n"+then {
			t.Errorf("told systemd %q; %s", told, out)
		}
	}
	writes := func(text string) { ok(t, os.WriteFile(filepath.Join(data, "nats", "log"), []byte(text), 0o600)) }
	holds := func(want, place string) {
		t.Helper()
		if text, err := os.ReadFile(filepath.Join(place, "nats", "log")); string(text) != want {
			t.Errorf("%s holds %q, want %q: %v", place, text, want, err)
		}
	}
	first := filepath.Join(backups, "countersign-"+at)
	writes("one")
	runs(scripts[0], started)
	holds("one", first)
	at = "2026-11-28T020000"
	writes("two")
	runs(scripts[0], started)
	holds("one", first)
	holds("two", filepath.Join(backups, "countersign-"+at))
	ok(t, os.Rename(first, first+".away")) // what is not there is not restored, and the data before it not started for it
	runs(scripts[1], "")
	holds("two", data)
	ok(t, os.Rename(first+".away", first))
	ok(t, os.MkdirAll(filepath.Join(data+".part", "stale"), 0o700))
	runs(scripts[1], started)
	holds("one", data)
	if _, err := os.Stat(filepath.Join(data, "stale")); err == nil {
		t.Error("what an earlier copy left is restored, too")
	}
	holds("two", data+".old-"+at)

	ok(t, os.RemoveAll(backups))
	ok(t, os.WriteFile(backups, nil, 0o600)) // no copy can be made
	runs(scripts[0], started)
	holds("one", data)
}
