package e2e_test

import (
	"archive/zip"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// interpreter is the path of Python itself. The python3 on the PATH may be a script that looks for it, which
// takes three times the processor time of the start itself.
var interpreter = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// pythonAlone runs the second verifier, which shares no code with the first: it was
// written from docs/evidence-format.md alone.
func pythonAlone(t testing.TB, args ...string) (code int, out string) {
	t.Helper()
	b, err := pythonCommand(t, append([]string{"verifier/verify.py"}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, string(b)
}

func pythonCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	path, err := interpreter()
	if err != nil {
		t.Skipf("no python3 to run the second verifier with: %v", err)
	}
	sources, err := filepath.Glob("verifier/*.py")
	ok(t, err)
	for _, file := range sources { // so that a remembered result is of these very files
		_, err := os.ReadFile(file)
		ok(t, err)
	}
	return exec.Command(path, append([]string{"-I"}, args...)...)
}

// verifyEach runs the second verifier once for each line of its input, which holds the arguments: a process for each would
// spend more than half of its time on its start. A crash is exit code 70, which no test accepts.
const verifyEach = `
import contextlib, io, json, sys, traceback
sys.dont_write_bytecode = True
sys.path.insert(0, "verifier")
import verify
for line in sys.stdin:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        sys.argv = ["verify.py"] + json.loads(line)
        try:
            code = verify.main()
        except SystemExit as e:
            code = e.code
        except Exception:
            traceback.print_exc()
            code = 70
    print(json.dumps({"Code": code, "Out": out.getvalue()}), flush=True)
`

// verifierProcess is the process of verifyEach that tests share.
var verifierProcess struct {
	sync.Mutex
	args    *json.Encoder // nil: not started
	answers *json.Decoder
	stop    func() error
}

// dropVerifier ends the process of verifyEach, if there is one.
func dropVerifier() error {
	if verifierProcess.args == nil {
		return nil
	}
	return verifierProcess.stop()
}

// python is pythonAlone in the process that tests share.
func python(t testing.TB, args ...string) (code int, out string) {
	t.Helper()
	p := &verifierProcess
	p.Lock()
	defer p.Unlock()
	if p.args == nil {
		cmd := pythonCommand(t, "-c", verifyEach)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		ok(t, err)
		answers, err := cmd.StdoutPipe()
		ok(t, err)
		ok(t, cmd.Start())
		p.args, p.answers = json.NewEncoder(in), json.NewDecoder(answers)
		p.stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	}
	ok(t, p.args.Encode(args))
	var r struct {
		Code int
		Out  string
	}
	ok(t, p.answers.Decode(&r))
	return r.Code, r.Out
}

// The page's own example verifies with the page alone, and does not once a letter of it is
// changed.
func TestSecondVerifierVectors(t *testing.T) {
	t.Parallel()
	page := root + "/test/verifier/example.md"
	if code, out := pythonAlone(t, "--vectors", page); code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	text, err := os.ReadFile(page)
	ok(t, err)
	_, example, _ := bytes.Cut(text, []byte("<!-- vectors:"))
	lines := bytes.Split(example, []byte("\n"))
	changed, inside := 0, false
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte("```")) {
			inside = !inside
		}
		if !inside || len(line) < 40 || bytes.HasPrefix(line, []byte("  - {")) { // that is the redaction policy
			continue
		}
		if changed++; changed%4 != 0 { // each takes a while
			continue
		}
		bad := slices.Clone(lines)
		at := len(line) / 2
		with := byte('A')
		if line[at] == with {
			with = 'B'
		}
		bad[i] = append(append(bytes.Clone(line[:at]), with), line[at+1:]...)
		file := filepath.Join(t.TempDir(), "page.md")
		ok(t, os.WriteFile(file, append(text[:len(text)-len(example):len(text)-len(example)], bytes.Join(bad, []byte("\n"))...), 0o600))
		if code, out := python(t, "--vectors", file); code != 1 {
			t.Errorf("exit %d with a changed line: %.100s\n%s", code, bad[i], out)
		}
	}
	if changed < 20 {
		t.Errorf("only %d lines were found to change", changed)
	}
}

// zipped is a bundle taken apart.
type zipped struct {
	names []string
	files map[string][]byte
}

func unzip(t testing.TB, path string) zipped {
	t.Helper()
	z, err := zip.OpenReader(path)
	ok(t, err)
	defer z.Close()
	b := zipped{files: map[string][]byte{}}
	for _, f := range z.File {
		r, err := f.Open()
		ok(t, err)
		data, err := io.ReadAll(r)
		ok(t, err)
		b.names, b.files[f.Name] = append(b.names, f.Name), data
	}
	return b
}

// wantRefused demands that both verifiers refuse the bundle, the second one for one of these members.
func (b zipped) wantRefused(t testing.TB, key string, members ...string) result {
	t.Helper()
	file := filepath.Join(t.TempDir(), "forged.zip")
	b.rezip(t, file)
	code, out := python(t, "--bundle", file, "--key", key)
	if code != 1 || !slices.ContainsFunc(members, func(m string) bool { return strings.Contains(out, "FAIL  "+m+": ") }) {
		t.Errorf("the second verifier: exit %d, want FAIL of %v\n%s", code, members, out)
	}
	return tool(t, "verify", "--bundle", file, "--key", key).want(t, 1)
}

// wantNamed demands that both verifiers refuse the bundle and name the member that was changed.
func (b zipped) wantNamed(t testing.TB, key, member string) {
	t.Helper()
	if r := b.wantRefused(t, key, member); !strings.Contains(r.out+r.err, member) {
		t.Errorf("countersign verify does not name %s:\n%s%s", member, r.out, r.err)
	}
}

// rezip writes a bundle in its one form, whatever is in it.
func (b zipped) rezip(t testing.TB, path string) {
	t.Helper()
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, name := range b.names {
		data := b.files[name]
		f, err := w.CreateRaw(&zip.FileHeader{Name: name, Method: zip.Store, CreatorVersion: 20, ReaderVersion: 20, CRC32: crc32.ChecksumIEEE(data), ModifiedDate: 1<<5 | 1, //nolint:staticcheck // SA1019: CreateRaw takes no other field
			CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data))})
		ok(t, err)
		_, err = f.Write(data)
		ok(t, err)
	}
	ok(t, w.Close())
	ok(t, os.WriteFile(path, buf.Bytes(), 0o600))
}

func (b zipped) clone() zipped {
	return zipped{slices.Clone(b.names), maps.Clone(b.files)}
}

// relist updates the manifest for the other members, as an attacker who changes them would.
func (b zipped) relist(t testing.TB) {
	t.Helper()
	var m object
	ok(t, json.Unmarshal(b.files["manifest.json"], &m))
	list := b.records(t)
	m["records"], m["seqs"] = len(list), []any{list[0]["seq"], list[len(list)-1]["seq"]}
	for _, e := range m["members"].([]any) {
		entry := e.(map[string]any)
		data := b.files[entry["name"].(string)]
		entry["size"], entry["sha256"] = len(data), fmt.Sprintf("%x", sha256.Sum256(data))
	}
	b.files["manifest.json"] = compact(t, m)
}

// compact is JSON with sorted keys, which is RFC 8785 for what is in bundles.
func compact(t testing.TB, v any) []byte {
	t.Helper()
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	ok(t, enc.Encode(v))
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

func (b zipped) lines() [][]byte {
	return bytes.SplitAfter(bytes.TrimSuffix(b.files["records.jsonl"], []byte("\n")), []byte("\n"))
}

func (b zipped) records(t testing.TB) (list []object) {
	t.Helper()
	for _, line := range b.lines() {
		dec := json.NewDecoder(bytes.NewReader(line))
		dec.UseNumber()
		var r object
		ok(t, dec.Decode(&r))
		list = append(list, r)
	}
	return list
}

// rewrite puts records in, with the chain in order again if chained, and derives
// what follows from them.
func (b zipped) rewrite(t testing.TB, list []object, chained bool) {
	t.Helper()
	var all bytes.Buffer
	bodies := map[string]*bytes.Buffer{"decision": {}, "finding": {}, "call": {}, "approval": {}}
	prev := any(nil)
	for i, r := range list {
		if chained {
			r["session_index"], r["session_prev"] = i+1, prev
		}
		text := compact(t, r)
		sum := sha256.Sum256(append([]byte("countersign/evidence/v1\x00"), text...))
		prev = hex.EncodeToString(sum[:])
		fmt.Fprintf(&all, "%s\n", text)
		if into := bodies[r.text("kind")]; into != nil {
			fmt.Fprintf(into, "%s\n", compact(t, r["body"]))
		}
	}
	b.files["records.jsonl"] = all.Bytes()
	for kind, body := range bodies {
		if _, there := b.files[kind+"s.jsonl"]; there {
			b.files[kind+"s.jsonl"] = body.Bytes()
		}
	}
	b.relist(t)
}

// signNote signs a note's text as a checkpoint key does.
func signNote(text []byte, key ed25519.PrivateKey) []byte {
	const name = "countersign.dev/checkpoint"
	id := sha256.Sum256(append([]byte(name+"\n\x01"), key.Public().(ed25519.PublicKey)...))
	sig := append(bytes.Clone(id[:4]), ed25519.Sign(key, text)...)
	return fmt.Appendf(nil, "%s\n— %s %s\n", text, name, base64.StdEncoding.EncodeToString(sig))
}

// forgedCheckpoint signs a bundle's checkpoint with a key of the forger's own
// that has the right name.
func forgedCheckpoint(text []byte) []byte {
	head, _, _ := bytes.Cut(text, []byte("\n\n"))
	return signNote(append(bytes.Clone(head), '\n'), ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32)))
}

// A bundle verifies by the second verifier, too; whatever is done to it, both say
// that it does not hold, and the second one which member it is.
func TestSecondVerifierBundle(t *testing.T) {
	t.Parallel()
	s := borrowed(t)
	dir := t.TempDir()
	whole, key := filepath.Join(dir, "b.zip"), filepath.Join(dir, "checkpoint.pub")
	tool(t, "keys", "statement", "--keys", dir).want(t, 0)
	plain := filepath.Join(dir, "plain.zip")
	s.run(t, "export", "--session", "small-1", "--out", plain).want(t, 0)
	s.run(t, "export", "--session", "small-1", "--out", whole, "--sign-key", filepath.Join(dir, "statement.key")).want(t, 0)
	ok(t, os.WriteFile(key, []byte(s.info(t).PublicKey+"\n"), 0o600))
	// From here on no command is told where a system is.
	for _, file := range []string{plain, whole} {
		if code, out := pythonAlone(t, "--bundle", file, "--key", key); code != 0 || !strings.Contains(out, "holds") || !strings.Contains(out, "small-1") {
			t.Fatalf("exit %d\n%s", code, out)
		} else if !strings.Contains(out, "README.txt, records.parquet, in_force.json, report.html, controls.json are known by their digests only") {
			t.Errorf("it does not say what it does not check:\n%s", out)
		}
	}
	good := unzip(t, whole)
	if !slices.Contains(good.names, "statement.dsse.json") {
		t.Errorf("members %v", good.names)
	}
	again := filepath.Join(dir, "again.zip")
	good.rezip(t, again)
	a, err := os.ReadFile(whole)
	ok(t, err)
	b, err := os.ReadFile(again)
	ok(t, err)
	if !bytes.Equal(a, b) {
		t.Fatal("the test packs other bytes than the exporter")
	}

	for _, name := range good.names {
		t.Run("a byte of "+name, func(t *testing.T) {
			b := good.clone()
			data := bytes.Clone(b.files[name])
			switch at := bytes.Index(data, []byte("small-1")); {
			case name == "manifest.json": // a digest in it could as well be the member's fault
				data[at] ^= 1
			case len(data) == 0:
				data = []byte("x")
			default:
				data[len(data)/2] ^= 1
			}
			b.files[name] = data
			b.wantNamed(t, key, name)
		})
	}
	decision := slices.IndexFunc(good.records(t), func(r object) bool { return r["kind"] == "decision" })
	other := func(list []object) object {
		return list[decision+1+slices.IndexFunc(list[decision+1:], func(r object) bool { return r["kind"] == "decision" })]
	}
	const signature = "Countersign-Signature"
	for _, tc := range []struct {
		name, member string
		do           func(t *testing.T, b zipped)
	}{
		{"changed", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			list[1]["broker_time"] = "2026-11-20T00:00:00.000000000Z"
			b.rewrite(t, list, false)
		}},
		{"changed, and the chain made anew", "cover.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			list[0]["broker_time"] = "2026-11-20T00:00:00.000000000Z"
			b.rewrite(t, list, true)
		}},
		{"the last deleted", "cover.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			b.rewrite(t, list[:len(list)-1], false)
		}},
		{"one deleted", "records.jsonl", func(t *testing.T, b zipped) { b.rewrite(t, slices.Delete(b.records(t), 1, 2), false) }},
		{"one inserted", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			extra := maps.Clone(list[0])
			extra["seq"] = json.Number("999999")
			b.rewrite(t, append(list, extra), false)
		}},
		{"one inserted, and the chain made anew", "cover.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			extra := maps.Clone(list[len(list)-1])
			extra["seq"] = json.Number("999999")
			b.rewrite(t, append(list, extra), true)
		}},
		{"reordered", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			list[0], list[1] = list[1], list[0]
			b.rewrite(t, list, false)
		}},
		{"doubled", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			b.rewrite(t, slices.Insert(list, 1, list[0]), false)
		}},
		{"an allow out of a deny", "records.jsonl", func(t *testing.T, b zipped) {
			text := bytes.ReplaceAll(b.files["records.jsonl"], []byte(`"verdict":"deny"`), []byte(`"verdict":"allow"`))
			b.files["records.jsonl"] = bytes.ReplaceAll(text, []byte(".deny."), []byte(".allow."))
			b.rewrite(t, b.records(t), true)
		}},
		{"a finding made milder", "records.jsonl", func(t *testing.T, b zipped) {
			b.files["records.jsonl"] = bytes.Replace(b.files["records.jsonl"], []byte(`"severity":"critical"`), []byte(`"severity":"info"`), 1)
			b.rewrite(t, b.records(t), true)
		}},
		{"a signature of another decision", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			list[decision]["headers"].(map[string]any)[signature] = other(list)["headers"].(map[string]any)[signature]
			b.rewrite(t, list, true)
		}},
		{"no signature", "records.jsonl", func(t *testing.T, b zipped) {
			list := b.records(t)
			delete(list[decision]["headers"].(map[string]any), signature)
			b.rewrite(t, list, true)
		}},
		{"subtrees in another order", "cover.jsonl", func(t *testing.T, b zipped) {
			lines := bytes.SplitAfter(b.files["cover.jsonl"], []byte("\n"))
			lines[0], lines[1] = lines[1], lines[0]
			b.files["cover.jsonl"] = bytes.Join(lines, nil)
			b.relist(t)
		}},
		{"a subtree missing", "cover.jsonl", func(t *testing.T, b zipped) {
			_, b.files["cover.jsonl"], _ = bytes.Cut(b.files["cover.jsonl"], []byte("\n"))
			b.relist(t)
		}},
		{"a checkpoint by another key", "checkpoint.txt", func(t *testing.T, b zipped) {
			b.files["checkpoint.txt"] = forgedCheckpoint(b.files["checkpoint.txt"])
			b.relist(t)
		}},
		{"a checkpoint of another size", "checkpoint.txt", func(t *testing.T, b zipped) {
			lines := strings.Split(string(b.files["checkpoint.txt"]), "\n")
			lines[1] += "0"
			b.files["checkpoint.txt"] = []byte(strings.Join(lines, "\n"))
			b.relist(t)
		}},
		{"a key that nobody vouches for", "keys.json", func(t *testing.T, b zipped) {
			var list []object
			ok(t, json.Unmarshal(b.files["keys.json"], &list))
			list[0]["vouch"] = strings.Replace(list[0]["vouch"].(string), "receipt", "receibt", 1)
			b.files["keys.json"] = compact(t, list)
			b.relist(t)
		}},
		{"no keys", "records.jsonl", func(t *testing.T, b zipped) {
			b.files["keys.json"] = []byte("[]")
			b.relist(t)
		}},
		{"a decision only in the list", "decisions.jsonl", func(t *testing.T, b zipped) {
			b.files["decisions.jsonl"] = append(bytes.Clone(b.files["decisions.jsonl"]), "{}\n"...)
			b.relist(t)
		}},
		{"another manifest", "manifest.json", func(t *testing.T, b zipped) {
			b.files["manifest.json"] = bytes.Replace(b.files["manifest.json"], []byte("small-1"), []byte("small-2"), 1)
		}},
		{"a manifest that lists what is not there", "manifest.json", func(t *testing.T, b zipped) {
			b.files["manifest.json"] = bytes.Replace(b.files["manifest.json"], []byte(`"report.html"`), []byte(`"report.htm"`), 1)
		}},
		{"another signature under the statement", "statement.dsse.json", func(t *testing.T, b zipped) {
			var e object
			ok(t, json.Unmarshal(b.files["statement.dsse.json"], &e))
			sig := e["signatures"].([]any)[0].(map[string]any)
			sig["sig"] = base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 64))
			b.files["statement.dsse.json"] = append(compact(t, e), '\n')
		}},
		{"a statement over other members", "statement.dsse.json", func(t *testing.T, b zipped) {
			b.files["README.txt"] = append(bytes.Clone(b.files["README.txt"]), ' ')
			b.relist(t)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := good.clone()
			tc.do(t, b)
			b.wantRefused(t, key, tc.member)
		})
	}
	t.Run("a member missing", func(t *testing.T) {
		b := good.clone()
		b.names = slices.DeleteFunc(b.names, func(n string) bool { return n == "findings.jsonl" })
		b.wantRefused(t, key, "archive")
	})
	t.Run("another key", func(t *testing.T) {
		wrong := "countersign.dev/checkpoint+00000000+AZ8MF+fN9cZ6kBPyKV1PZD3QFNpqSfpTNuyWjwZUmnoD"
		if code, out := python(t, "--bundle", whole, "--key", wrong); code != 2 {
			t.Errorf("exit %d\n%s", code, out)
		}
		key := filepath.Join(root, "test/verifier/example.md") // another installation's key is in it
		page, err := os.ReadFile(key)
		ok(t, err)
		_, rest, _ := strings.Cut(string(page), "countersign.dev/checkpoint+606d94ae")
		line, _, _ := strings.Cut(rest, "\n")
		if code, out := python(t, "--bundle", whole, "--key", "countersign.dev/checkpoint+606d94ae"+line); code != 1 || !strings.Contains(out, "checkpoint.txt") {
			t.Errorf("exit %d\n%s", code, out)
		}
	})
	t.Run("bytes between the members", func(t *testing.T) {
		raw, err := os.ReadFile(whole)
		ok(t, err)
		for _, at := range []int{6, 10, len(raw) - 1, len(raw) - 30} {
			bad := bytes.Clone(raw)
			bad[at] ^= 1
			file := filepath.Join(t.TempDir(), "forged.zip")
			ok(t, os.WriteFile(file, bad, 0o600))
			if code, out := python(t, "--bundle", file, "--key", key); code != 1 {
				t.Errorf("byte %d: exit %d\n%s", at, code, out)
			}
		}
	})
}
