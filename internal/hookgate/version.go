package hookgate

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/hook"
)

// Bounds of the search for an agent's package: what is farther away is not looked at.
const (
	maxAncestors = 6       // processes: the gate, shells around it, the agent and its starter
	maxWords     = 6       // of the command line of an interpreter: its flags and the agent's script
	maxFolders   = 6       // between a program and the file of its package
	maxPackage   = 1 << 18 // bytes of that file
	maxVersion   = 64      // bytes; what is longer is no version
)

// versionOf finds the version of an agent that does not have it in its input; empty if it cannot be told.
func versionOf(a hook.Agent) string {
	switch {
	case a.Version != nil:
		return a.Version(os.Getenv)
	case a.Package != "":
		return packageVersion("/proc", os.Getppid(), a.Package)
	}
	return ""
}

// packageVersion finds the version of the agent that runs this process: that of the npm package to which the
// program of an ancestor belongs, or the script that it interprets. It is empty where there is none, and on
// systems without /proc.
func packageVersion(proc string, pid int, name string) string {
	for range maxAncestors {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		for _, file := range programFiles(dir) {
			if v := versionAbove(file, name); v != "" {
				return v
			}
		}
		if pid = parentOf(dir); pid <= 1 {
			break
		}
	}
	return ""
}

// programFiles are the files of a process: its program, and what may be a script among its first arguments.
func programFiles(dir string) (files []string) {
	if file, err := os.Readlink(filepath.Join(dir, "exe")); err == nil {
		files = append(files, file)
	}
	const enough = 4 << 10
	for _, word := range bytes.SplitN(beginOf(filepath.Join(dir, "cmdline"), enough), []byte{0}, maxWords+1) {
		if !filepath.IsAbs(string(word)) || len(files) > maxWords {
			continue
		}
		if file, err := filepath.EvalSymlinks(string(word)); err == nil {
			files = append(files, file)
		}
	}
	return files
}

// versionAbove reads the version in the package.json nearest to a file, if it is of this package or of its build for
// a platform.
func versionAbove(file, name string) string {
	for range maxFolders {
		file = filepath.Dir(file)
		path := filepath.Join(file, "package.json")
		info, err := os.Stat(path)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		var p struct{ Name, Version string }
		if json.Unmarshal(beginOf(path, maxPackage), &p) != nil || p.Name != name && !strings.HasPrefix(p.Name, name+"-") {
			return ""
		}
		version, _, _ := strings.Cut(p.Version, "-linux-") // Codex names the platform in it
		if len(version) > maxVersion {
			return ""
		}
		return version
	}
	return ""
}

// parentOf reads the parent of a process: the second field after its name, which is in brackets and may hold any text.
func parentOf(dir string) int {
	const enough = 1 << 10
	stat := beginOf(filepath.Join(dir, "stat"), enough)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	pid, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return pid
}

// beginOf reads at most so many bytes of a file; none if it cannot be read.
func beginOf(path string, limit int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	return text
}
