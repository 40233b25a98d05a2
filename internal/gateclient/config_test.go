package gateclient

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"testing"
)

// The environment, which an agent sets for its hooks, does not move the configuration of a managed gate.
func TestHomeConfigPath(t *testing.T) {
	u, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		t.Skip("this user is not in the system's list of users")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if path, err := HomeConfigPath(); err != nil || path != filepath.Join(u.HomeDir, ".config/countersign/hook.json") {
		t.Errorf("%s, %v", path, err)
	}
}
