package e2e_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// aloneWith runs the program as on another machine: an empty environment, another
// home, no network at all where the kernel lets us, and nothing but these files.
func aloneWith(t testing.TB, args ...string) result {
	t.Helper()
	program := program("countersign")
	cmd := exec.Command("unshare", append([]string{"-r", "-n", "--", program}, args...)...)
	if out, err := exec.Command("unshare", "-r", "-n", "--", "true").CombinedOutput(); err != nil {
		t.Logf("no namespace without a network here (%v: %s): verified with the network of this machine", err, bytes.TrimSpace(out))
		cmd = exec.Command(program, args...)
	}
	home := t.TempDir()
	cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home, "TMPDIR=" + home}
	cmd.Dir = home
	r := command(t, cmd)
	left, err := os.ReadDir(home)
	ok(t, err)
	if len(left) > 0 {
		t.Errorf("verification left %v behind", left)
	}
	return r
}

// A session and a range exported here verify on another machine with only the file
// and the public key, checkpoints that a witness signed included; what decided is
// in both, and the second verifier agrees.
func TestExportVerifiesElsewhere(t *testing.T) {
	t.Parallel()
	begin := time.Now().UTC()
	s := smallSystem(t)
	dir, elsewhere := t.TempDir(), t.TempDir()
	witness, cosigned := filepath.Join(dir, "w1"), filepath.Join(dir, "cosigned.txt")
	s.run(t, "witness", "key", "--name", "witness.example.com/w1", "--out", witness).want(t, 0)
	s.run(t, "witness", "key", "--name", "witness.example.com/w2", "--out", filepath.Join(dir, "w2")).want(t, 0)
	s.run(t, "witness", "sign", "--key", witness, "--out", cosigned).want(t, 0)
	second := filepath.Join(dir, "cosigned2.txt")
	s.run(t, "witness", "sign", "--key", filepath.Join(dir, "w2"), "--checkpoint", cosigned, "--out", second).want(t, 0)
	end := time.Now().UTC()
	s.runtime(t).admit(t, "agenthook", allowedCall("s-later", "c1").bytes())
	s.exact(t)
	signed(t, s)

	of := map[string][]string{"session": {"--session", "small-1"}, "range": {"--from", begin.Format(time.RFC3339Nano), "--to", end.Format(time.RFC3339Nano)}}
	key := filepath.Join(elsewhere, "checkpoint.pub")
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	for name, args := range of {
		plain, with := filepath.Join(elsewhere, name+".zip"), filepath.Join(elsewhere, name+"-witnessed.zip")
		s.run(t, append([]string{"export", "--out", plain}, args...)...).want(t, 0)
		s.run(t, append([]string{"export", "--out", with, "--witnessed", cosigned, "--witnessed", second}, args...)...).want(t, 0)
	}
	none := filepath.Join(dir, "none.zip")
	s.run(t, "export", "--session", "s-later", "--witnessed", cosigned, "--out", none).want(t, 1).oneLine(t, "newer than the witnessed checkpoint")
	s.run(t, "export", "--session", "small-1", "--witnessed", key, "--out", none).want(t, 2).oneLine(t, "--witnessed")
	if _, err := os.Stat(none); err == nil {
		t.Error("a file is there that should not be")
	}
	for _, file := range []string{witness + ".pub", filepath.Join(dir, "w2.pub")} {
		b, err := os.ReadFile(file)
		ok(t, err)
		ok(t, os.WriteFile(filepath.Join(elsewhere, filepath.Base(file)), b, 0o600))
	}
	ok(t, s.stop())

	w1, w2 := filepath.Join(elsewhere, "w1.pub"), filepath.Join(elsewhere, "w2.pub")
	for name := range of {
		plain, with := filepath.Join(elsewhere, name+".zip"), filepath.Join(elsewhere, name+"-witnessed.zip")
		if r := aloneWith(t, "verify", "--bundle", plain, "--key", key).want(t, 0); !strings.Contains(r.out, "holds") || r.err != "" {
			t.Errorf("%s: %s%s", name, r.out, r.err)
		}
		aloneWith(t, "verify", "--bundle", with, "--key", key, "--witness", w1, "--witness", w2).want(t, 0)
		if r := aloneWith(t, "verify", "--bundle", plain, "--key", key, "--witness", w1).want(t, 1); !strings.Contains(r.out, "witness_quorum in checkpoint.txt") {
			t.Errorf("%s: %s%s", name, r.out, r.err)
		}
		if code, out := python(t, "--bundle", with, "--key", key, "--witness", w1, "--witness", w2); code != 0 || !strings.Contains(out, "cosigned by witness.example.com/w2 at 20") {
			t.Errorf("%s: exit %d\n%s", name, code, out)
		}
		if code, out := python(t, "--bundle", plain, "--key", key, "--witness", w1); code != 1 || !strings.Contains(out, "FAIL  checkpoint.txt") {
			t.Errorf("%s: exit %d\n%s", name, code, out)
		}
		decidedBy(t, name, unzip(t, plain))
	}
	rangeVerifiers(t, unzip(t, filepath.Join(elsewhere, "range.zip")), key)
}

// decidedBy looks at what decided: the policies that every decision names, with
// their text, in the list and in the report.
func decidedBy(t testing.TB, name string, b zipped) {
	t.Helper()
	var f struct {
		Policies []struct {
			Revision  int
			Digest    string
			Decisions int
			Text, Why string
			Documents []struct{ Name, Text string }
		}
	}
	ok(t, json.Unmarshal(b.files["in_force.json"], &f))
	decisions := bytes.Count(b.files["decisions.jsonl"], []byte("\n"))
	named, texts := 0, 0
	for _, p := range f.Policies {
		named += p.Decisions
		if !bytes.Contains(b.files["report.html"], []byte(p.Digest)) {
			t.Errorf("%s: the report does not name %s", name, p.Digest)
		}
		for _, d := range p.Documents {
			texts += len(d.Text)
		}
		if p.Text == "missing" {
			t.Errorf("%s: the text of revision %d is not there: %s", name, p.Revision, p.Why)
		}
	}
	if named != decisions || texts == 0 || decisions == 0 {
		t.Errorf("%s: %d of %d decisions name a policy that is listed, with %d bytes of text", name, named, decisions, texts)
	}
	if !bytes.HasPrefix(b.files["records.parquet"], []byte("PAR1")) || !bytes.HasSuffix(b.files["records.parquet"], []byte("PAR1")) {
		t.Errorf("%s: the table is no Parquet file", name)
	}
}

// rangeVerifiers changes a range as an attacker would, with a matching manifest: both verifiers
// reject it, and the second one names the member; for one changed byte both do.
func rangeVerifiers(t *testing.T, good zipped, key string) {
	for _, name := range good.names {
		t.Run("a byte of "+name, func(t *testing.T) {
			b := good.clone()
			data := bytes.Clone(b.files[name])
			switch {
			case name == "manifest.json": // a digest in it could as well be the member's fault
				data[bytes.Index(data, []byte(`"checkpoint_root":"`))+len(`"checkpoint_root":"`)] ^= 1
			case len(data) == 0:
				data = []byte("x\n")
			default:
				data[len(data)/2] ^= 1
			}
			b.files[name] = data
			b.wantNamed(t, key, name)
		})
	}
	lines := bytes.SplitAfter(bytes.TrimSuffix(good.files["records.jsonl"], []byte("\n")), []byte("\n"))
	lines[len(lines)-1] = append(bytes.Clone(lines[len(lines)-1]), '\n')
	for name, tc := range map[string]struct {
		lines   [][]byte
		members []string
	}{
		"one left out":      {slices.Delete(slices.Clone(lines), 3, 4), []string{"records.jsonl", "cover.jsonl"}},
		"the last left out": {lines[:len(lines)-1], []string{"cover.jsonl"}},
		"reordered":         {append([][]byte{lines[1], lines[0]}, lines[2:]...), []string{"records.jsonl"}},
		"doubled":           {slices.Insert(slices.Clone(lines), 1, lines[0]), []string{"records.jsonl"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := good.clone()
			b.files["records.jsonl"] = bytes.Join(tc.lines, nil)
			b.rewrite(t, b.records(t), false)
			b.wantRefused(t, key, tc.members...)
		})
	}
	t.Run("another cover", func(t *testing.T) {
		b := good.clone()
		cover := bytes.SplitAfter(b.files["cover.jsonl"], []byte("\n"))
		b.files["cover.jsonl"] = bytes.Join(cover[1:], nil)
		b.relist(t)
		b.wantRefused(t, key, "cover.jsonl")
	})
	t.Run("another range", func(t *testing.T) {
		b := good.clone()
		var m object
		ok(t, json.Unmarshal(b.files["manifest.json"], &m))
		m["from"] = "2026-01-01T00:00:00.000000000Z"
		b.files["manifest.json"] = compact(t, m)
		file := filepath.Join(t.TempDir(), "forged.zip")
		b.rezip(t, file)
		if r := tool(t, "verify", "--bundle", file, "--key", key); r.code != 1 { // the README and the report say another
			t.Errorf("exit %d\n%s%s", r.code, r.out, r.err)
		}
	})
}

// Every kind of file that is no good bundle: one clear line, and not exit 0.
func TestBundleBadInput(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	dir := t.TempDir()
	session, ranged := filepath.Join(dir, "session.zip"), filepath.Join(dir, "range.zip")
	s.run(t, "export", "--session", "small-1", "--out", session).want(t, 0)
	s.run(t, "export", "--from", "2020-01-01", "--to", time.Now().UTC().Format(time.RFC3339Nano), "--out", ranged).want(t, 0)
	key := s.info(t).PublicKey
	// What the exporter refuses leaves no file.
	none := filepath.Join(dir, "none.zip")
	s.run(t, "export", "--session", "nobody", "--out", none).want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "export", "--session", "small-1", "--shard", "GOV@20200101T000000.000000000Z", "--out", none).want(t, 1).oneLine(t, "no record of this session")
	s.run(t, "export", "--session", "small-1", "--out", filepath.Join(dir, "no", "such", "dir.zip")).want(t, 1).oneLine(t, "writing the bundle")
	s.run(t, "export", "--from", "2020-01-01", "--to", "2020-01-02", "--out", none).want(t, 1).oneLine(t, "no record in this time range")
	s.run(t, "export", "--from", "2020-01-01", "--to", "2120-01-01", "--out", none).want(t, 2).oneLine(t, "still being written")
	s.run(t, "export", "--from", "2020-01-01", "--out", none).want(t, 2).oneLine(t, "two ends")
	s.run(t, "export", "--session", "small-1", "--sign-key", filepath.Join(dir, "absent.key"), "--out", none).want(t, 2).oneLine(t, "--sign-key")
	// From here on no command is told where a system is.
	left, err := os.ReadDir(dir)
	ok(t, err)
	if len(left) != 2 {
		t.Errorf("files are left behind: %v", left)
	}

	fifo := filepath.Join(dir, "fifo")
	ok(t, syscall.Mkfifo(fifo, 0o600))

	otherKey := func() string { // of the page's example
		page, err := os.ReadFile(filepath.Join(root, "test/verifier/example.md"))
		ok(t, err)
		_, rest, _ := strings.Cut(string(page), "countersign.dev/checkpoint+606d94ae")
		line, _, _ := strings.Cut(rest, "\n")
		return "countersign.dev/checkpoint+606d94ae" + line
	}()
	for kind, file := range map[string]string{"session": session, "range": ranged} {
		whole, err := os.ReadFile(file)
		ok(t, err)
		write := func(b []byte) string {
			out := filepath.Join(t.TempDir(), "bad.zip")
			ok(t, os.WriteFile(out, b, 0o600))
			return out
		}
		if r := tool(t, "verify", "--bundle", file, "--key", otherKey).want(t, 1); !strings.Contains(r.out, "checkpoint_invalid") {
			t.Errorf("%s: by another key: %s%s", kind, r.out, r.err)
		}
		newer := unzip(t, file)
		newer.files["manifest.json"] = regexp.MustCompile(`("format":"[a-z/]*/v)`).ReplaceAll(newer.files["manifest.json"], []byte("${1}9"))
		newerFile := filepath.Join(t.TempDir(), "newer.zip")
		newer.rezip(t, newerFile)
		for name, tc := range map[string]struct {
			file, says string
		}{
			"empty":            {write(nil), "not a ZIP file, or cut short"},
			"no zip":           {write([]byte("hello")), "not a ZIP file, or cut short"},
			"truncated":        {write(whole[:len(whole)/2]), "not a ZIP file, or cut short"},
			"truncated by one": {write(whole[:len(whole)-1]), "not a ZIP file, or cut short"},
			"zip slip":         {write(bytes.ReplaceAll(whole, []byte("controls.json"), []byte("../../etc/pwd"))), `unknown member "../../etc/pwd"`},
			"a newer format":   {newerFile, "this program reads"},
			"compressed":       {recompressed(t, file), "is not stored plainly"},
			"a member twice":   {write(bytes.ReplaceAll(whole, []byte("findings.jsonl"), []byte("decision.jsonl"))), "unknown member"},
			"a directory":      {dir, "is a directory"},
			"a pipe":           {fifo, "is a directory, a pipe or a device"},
			"absent":           {filepath.Join(dir, "absent.zip"), "no such file"},
		} {
			r := tool(t, "verify", "--bundle", tc.file, "--key", key)
			if r.code == 0 {
				t.Errorf("%s, %s: it verifies", kind, name)
			}
			r.oneLine(t, tc.says)
		}
	}
}

// recompressed is a bundle as another ZIP program would pack it.
func recompressed(t testing.TB, file string) string {
	t.Helper()
	b := unzip(t, file)
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range b.names {
		f, err := w.Create(name)
		ok(t, err)
		_, err = f.Write(b.files[name])
		ok(t, err)
	}
	ok(t, w.Close())
	out := filepath.Join(t.TempDir(), "other.zip")
	ok(t, os.WriteFile(out, buf.Bytes(), 0o600))
	return out
}
