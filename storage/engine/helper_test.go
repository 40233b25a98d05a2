package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

// helperEnv makes the test binary start an engine in the directory it names and
// wait to be killed: the parent of an engine that dies without a word.
const helperEnv = "COUNTERSIGN_TEST_ENGINE_OWNER"

// helperReport is what such a helper says on stdout.
type helperReport struct {
	PID int    `json:"pid"`
	DSN string `json:"dsn"`
}

func runHelperIfAsked() {
	dir := os.Getenv(helperEnv)
	if dir == "" {
		return
	}
	e, err := Start(context.Background(), Options{DataDir: dir, Embedded: true, MaxMemory: 1 << 30})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	b, _ := json.Marshal(helperReport{e.PID(), e.DSN()})
	fmt.Println(string(b))
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(1)
}

// startOwner starts a helper and its engine.
func startOwner(t *testing.T, dir string) (*exec.Cmd, helperReport) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+dir)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal("the helper said nothing: ", err)
	}
	var r helperReport
	if err := json.Unmarshal(line, &r); err != nil {
		t.Fatal(err)
	}
	return cmd, r
}
