package gateclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// HomeConfigPath is hook.json in the home that the system's list of users gives the user, whatever the environment
// says: an agent sets the environment of its hooks. (os/user falls back to HOME for a user whom /etc/passwd lacks.)
func HomeConfigPath() (string, error) {
	home, err := systemUsers.homeOf(os.Getuid())
	if err != nil {
		return "", fmt.Errorf("finding the user's home: %w", err)
	}
	return filepath.Join(home, ".config", "countersign", "hook.json"), nil
}

// userList is where the system lists its users.
type userList struct {
	file   string // of the users of this machine
	getent string // the program that knows those of a directory, as of LDAP, too
}

var systemUsers = userList{"/etc/passwd", "/usr/bin/getent"}

// lookupTime bounds the answer of a directory.
const lookupTime = 5 * time.Second

// homeOf is the home of a user, an absolute path.
func (l userList) homeOf(uid int) (string, error) {
	text, err := os.ReadFile(l.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	home, listed := homeIn(text, uid)
	if !listed {
		ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
		defer cancel()
		cmd := exec.CommandContext(ctx, l.getent, "passwd", strconv.Itoa(uid))
		cmd.Env = []string{} // none of this process's
		if text, err = cmd.Output(); err != nil {
			return "", fmt.Errorf("neither %s nor %s knows user %d", l.file, l.getent, uid)
		}
		home, _ = homeIn(text, uid)
	}
	if !filepath.IsAbs(home) {
		return "", fmt.Errorf("user %d has no home", uid)
	}
	return home, nil
}

// homeIn finds a user's home in lines of the form of passwd(5).
func homeIn(text []byte, uid int) (home string, listed bool) {
	const id, dir, all = 2, 5, 7
	for line := range bytes.Lines(text) {
		fields := bytes.Split(bytes.TrimRight(line, "\n"), []byte{':'})
		if len(fields) == all && string(fields[id]) == strconv.Itoa(uid) {
			return string(fields[dir]), true
		}
	}
	return "", false
}
