package gateclient

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// A user of a directory is found by getent, which gets nothing of the environment. Users without a home, and
// unknown users, are refused.
func TestHomeOfUser(t *testing.T) {
	dir := t.TempDir()
	passwd, getent := filepath.Join(dir, "passwd"), filepath.Join(dir, "getent")
	testkit.OK(t, os.WriteFile(passwd, []byte("# users\nroot:x:0:0:root:/root:/bin/sh\nann:x:10:10::/home/ann:/bin/sh\nbob:x:11:11:::/bin/sh\ncut:x:12:12::/home/cut\nrel:x:13:13::home:/bin/sh"), 0o600))
	program := "#!/bin/sh\n[ -z \"$USER$HOME\" ] || exit 1\n" +
		"case \"$1 $2\" in \"passwd 20\") echo 'eve:*:20:20:Eve:/net/eve:/bin/sh';; \"passwd 21\") echo 'ann:x:10:10::/home/ann:/bin/sh';; *) exit 2;; esac\n"
	testkit.OK(t, os.WriteFile(getent, []byte(program), 0o700))
	t.Setenv("USER", "eve")
	t.Setenv("HOME", dir)
	for uid, want := range map[int]string{0: "/root", 10: "/home/ann", 11: "no home", 12: "knows user 12", 13: "no home", 20: "/net/eve", 21: "no home", 22: "knows user 22"} {
		home, err := userList{passwd, getent}.homeOf(uid)
		if home != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d: %q, %v; want %q", uid, home, err, want)
		}
	}
	if home, err := (userList{filepath.Join(dir, "none"), getent}).homeOf(20); home != "/net/eve" {
		t.Errorf("without a file: %q, %v", home, err)
	}
	if home, err := (userList{passwd, filepath.Join(dir, "none")}).homeOf(20); err == nil {
		t.Errorf("without getent: %q", home)
	}
}

const showHome = "COUNTERSIGN_TEST_SHOW_HOME"

// An agent sets the environment of its hooks. It does not move the configuration of a managed gate, of a user whom the
// system does not list either.
func TestHomeConfigPath(t *testing.T) {
	if os.Getenv(showHome) != "" {
		fmt.Println(HomeConfigPath())
		return
	}
	for _, uid := range []int{os.Getuid(), 54_321} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestHomeConfigPath$")
		cmd.Env = []string{"HOME=/planted", "USER=planted", "XDG_CONFIG_HOME=/planted", showHome + "=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil && len(out) == 0 {
			t.Skip("this machine gives no user namespaces: ", err)
		}
		if text := string(out); err != nil || strings.Contains(text, "planted") || !strings.Contains(text, "hook.json <nil>") && !strings.Contains(text, "knows user") {
			t.Errorf("user %d: %s %v", uid, text, err)
		}
	}
}

// The ready file of the environment is for commands that are told no other place.
func TestReadyFileOf(t *testing.T) {
	t.Setenv("COUNTERSIGN_READY_FILE", "environment")
	for given, want := range map[[2]string]string{{"", ""}: "environment", {"flag", ""}: "flag", {"", "elsewhere"}: ""} {
		if got := ReadyFileOf(given[0], given[1]); got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
