package verify

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
)

func signedCheckpoint(t *testing.T, shard string, size int64) (tree.Checkpoint, string) {
	t.Helper()
	skey, _, err := signing.NewCheckpointKey(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.CheckpointSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	cp := tree.Checkpoint{Shard: shard, Size: size, Root: tlog.Hash{byte(size)}}
	text, err := tree.SignCheckpoint(signer, cp)
	if err != nil {
		t.Fatal(err)
	}
	return cp, text
}

// A witness remembers the last checkpoint of every log, and only one process can sign at a time.
func TestWitnessMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	open := func() *witnessMemory {
		t.Helper()
		m, err := openMemory(path)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	if m.last("GOV@a") != nil {
		t.Error("it remembers what it never signed")
	}
	for _, c := range []struct {
		shard string
		size  int64
	}{{"GOV@b", 3}, {"GOV@a", 5}, {"GOV@b", 7}} {
		cp, text := signedCheckpoint(t, c.shard, c.size)
		if err := m.remember(cp, text); err != nil {
			t.Fatal(err)
		}
		if _, err := openMemory(path); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Fatalf("two at the same time: %v", err)
		}
		m.close()
		m = open()
		if last := m.last(c.shard); last == nil || last.Size != c.size || m.logs[c.shard] != text {
			t.Fatalf("%s: %+v\n%q", c.shard, last, m.logs[c.shard])
		}
	}
	if a, b := m.last("GOV@a"), m.last("GOV@b"); a.Size != 5 || b.Size != 7 {
		t.Errorf("%+v %+v", a, b)
	}
	m.close()

	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"empty": nil, "something": []byte("x"), "cut off": whole[:len(whole)-150], "cut in the head": whole[:20],
		"one log twice": append(bytes.Clone(whole), append([]byte("\n"), whole[bytes.Index(whole, []byte("countersign.dev/GOV@b")):]...)...),
	} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := openMemory(path); err == nil || !strings.Contains(err.Error(), "must not forget") {
			t.Errorf("%s: %v %+v", name, err, m)
		}
	}
	blind := &witnessMemory{path: filepath.Join(path, "no", "such"), logs: map[string]string{}}
	cp, text := signedCheckpoint(t, "GOV@a", 9)
	if err := blind.remember(cp, text); err == nil || !strings.Contains(err.Error(), "nothing was signed") {
		t.Errorf("it cannot remember, and signs: %v", err)
	}
	if last := blind.last("GOV@a"); last != nil {
		t.Errorf("it hands in what it could not remember: %+v", last)
	}
}

// A history under the name of another incarnation is a second history, too: the witness signs the
// first incarnation of a log that it sees, and another one only if it is told to.
func TestWitnessRefusesAnotherIncarnation(t *testing.T) {
	skey, _, err := tree.NewWitnessKey(bytes.NewReader(make([]byte, 32)), "witness.example.com/w1")
	if err != nil {
		t.Fatal(err)
	}
	w, err := tree.WitnessSigner(skey)
	if err != nil {
		t.Fatal(err)
	}
	_, vkey, err := signing.NewCheckpointKey(bytes.NewReader(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	log, err := signing.CheckpointVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	memory, err := openMemory(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.close()
	noProofs := func() (*evidencereader.Reader, error) { return nil, errors.New("no proof is needed") }
	for _, tc := range []struct {
		shard, newLog string
		want          error
	}{
		{"GOV@a", "", nil}, {"GOV@b", "", errNewLog}, {"GOV@b", "GOV@c", errNewLog}, {"GOV@a", "", nil}, {"EAST@b", "", nil}, {"GOVERN@b", "", nil},
		{"GOV@b", "GOV@b", nil}, {"GOV@b", "", nil}, {"GOV@a", "", nil}, {"GOV@c", "GOV@b", errNewLog},
	} {
		_, text := signedCheckpoint(t, tc.shard, 5)
		_, _, err := cosigner{w, note.VerifierList(log), memory, tc.newLog, noProofs}.sign(t.Context(), text)
		if !errors.Is(err, tc.want) || err != nil && (tc.want == nil || !isRefused(err) || !alarming(err)) {
			t.Errorf("%s with --new-log %q: %v, want %v", tc.shard, tc.newLog, err, tc.want)
		}
	}
	if memory.last("GOV@c") != nil || memory.last("GOV@b") == nil {
		t.Errorf("it remembers %v", memory.logs)
	}
}

// A witness's signature of long ago is not enough where --unwitnessed limits what may come behind it.
func TestUnwitnessed(t *testing.T) {
	most := int64(10)
	for name, tc := range map[string]struct {
		limit           *int64
		size, witnessed int64
		holds           bool
	}{
		"no limit": {nil, 1000, 1, true}, "within it": {&most, 1000, 990, true}, "all signed": {&most, 1000, 1000, true}, "behind it": {&most, 1000, 989, false}, "none signed: reported already": {&most, 1000, 0, true},
	} {
		reports := []verify.Report{{OK: true, Size: tc.size, Witnessed: tc.witnessed}}
		(&Cmd{Unwitnessed: tc.limit}).limitUnwitnessed(reports)
		if reports[0].OK != tc.holds || reports[0].ByCode[verify.CodeWitnesses] > 0 == tc.holds {
			t.Errorf("%s: %+v", name, reports[0])
		}
	}
}

// A check that was asked for and cannot be made is refused.
func TestVerifyFlagsThatDoNotGoTogether(t *testing.T) {
	some, negative := int64(3), int64(-1)
	for name, c := range map[string]Cmd{
		"bundle and proof":         {Bundle: "a", Proof: "b"},
		"bundle and session":       {Bundle: "a", Session: "s"},
		"bundle, kept checkpoint":  {Bundle: "a", From: []string{"x"}},
		"proof and receipt":        {Proof: "a", Receipt: []string{"x"}},
		"proof, many records":      {Proof: "a", AtLeast: 2},
		"session and time":         {Session: "a", Since: "2026-11-20T00:00:00Z"},
		"time and receipt":         {Until: "2026-11-20T00:00:00Z", Receipt: []string{"x"}},
		"time and at least":        {Until: "2026-11-20T00:00:00Z", AtLeast: 1},
		"retired without a bundle": {Retired: []string{"x"}},
		"prove without out":        {Prove: 1},
		"out without prove":        {Out: "x"},
		"prove and session":        {Prove: 1, Out: "x", Session: "s"},
		"quorum of nobody":         {Quorum: 1},
		"quorum of too many":       {Quorum: 3, Witness: []string{"a", "b"}},
		"no workers":               {Workers: -1},
		"unwitnessed, no witness":  {Unwitnessed: &some},
		"unwitnessed in a bundle":  {Unwitnessed: &some, Witness: []string{"w"}, Bundle: "b"},
		"fewer than none":          {Unwitnessed: &negative, Witness: []string{"w"}},
	} {
		var usageError ui.UsageError
		if !errors.As(c.consistent(), &usageError) {
			t.Errorf("%s goes through", name)
		}
	}
	for _, c := range []Cmd{{}, {Session: "s", From: []string{"x"}, Witness: []string{"w"}, Quorum: 1, Receipt: []string{"r"}, AtLeast: 3, Unwitnessed: &some},
		{Since: "x", Until: "y", From: []string{"x"}}, {Bundle: "b", Witness: []string{"w"}, Retired: []string{"r"}, AtLeast: 4}, {Prove: 3, Out: "x", Witness: []string{"w"}}} {
		if err := c.consistent(); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
