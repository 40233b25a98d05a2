package deploy_test

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// makeSecrets runs make-secrets.sh and gives the names of what it made.
func makeSecrets(t *testing.T) map[string]bool {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secrets")
	shell(t, "sh", "make-secrets.sh", dir)
	first := contents(t, dir)
	shell(t, "sh", "make-secrets.sh", dir)
	made := map[string]bool{}
	for name, text := range contents(t, dir) {
		if text != first[name] {
			t.Errorf("make-secrets.sh changes %s when it is run again", name)
		}
		info, err := os.Stat(filepath.Join(dir, name))
		ok(t, err)
		if info.Mode().Perm() != 0o600 || strings.TrimSpace(text) == "" {
			t.Errorf("%s has mode %o and %d bytes", name, info.Mode().Perm(), len(text))
		}
		made[name] = true
	}
	if got, want := strings.TrimSpace(first["clickhouse-owner.sha256"]), sha(strings.TrimSpace(first["clickhouse-owner"])); got != want {
		t.Errorf("the hash of the owner's password is %s, want %s", got, want)
	}
	return made
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	list, err := os.ReadDir(dir)
	ok(t, err)
	texts := map[string]string{}
	for _, e := range list {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		ok(t, err)
		texts[e.Name()] = string(b)
	}
	return texts
}

func shell(t *testing.T, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = path("deploy")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func TestWithSecrets(t *testing.T) {
	dir := t.TempDir()
	ok(t, os.WriteFile(filepath.Join(dir, "a"), []byte("va l$ue\n"), 0o600))
	ok(t, os.WriteFile(filepath.Join(dir, "empty"), nil, 0o600))
	if got := shell(t, "sh", "with-secrets.sh", "A="+dir+"/a", "B="+dir+"/a", "--", "sh", "-c", `printf '%s|%s|%s' "$A" "$B" "$0"`, "x y"); got != "va l$ue|va l$ue|x y" {
		t.Errorf("got %q", got)
	}
	for name, pair := range map[string]string{"missing": "A=" + dir + "/none", "empty": "A=" + dir + "/empty"} {
		cmd := exec.Command("sh", path("deploy/with-secrets.sh"), pair, "--", "true")
		if err := cmd.Run(); err == nil {
			t.Errorf("a secret that is %s is taken", name)
		}
	}
}

func TestHealthy(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash here; the images have it")
	}
	var status atomic.Int32
	status.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			status.Store(http.StatusNotFound)
		}
		w.WriteHeader(int(status.Load()))
	}))
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	ok(t, err)
	setPasswords(t, read(t, natsConf))
	natsURL := boot(t, natsConf, nil).ClientURL()
	natsPort := natsURL[strings.LastIndex(natsURL, ":")+1:]
	check := func(want bool, args ...string) {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.Command("bash", append([]string{path("deploy/healthy.sh")}, args...)...)
		cmd.Stderr = &out
		if err := cmd.Run(); (err == nil) != want {
			t.Errorf("healthy %q: %v %s", args, err, out.String())
		}
	}
	check(true, "http", port)
	status.Store(http.StatusServiceUnavailable)
	check(false, "http", port)
	check(true, "nats", natsPort)
	check(false, "http", natsPort)
	check(true, "tcp", port)
	srv.Close()
	check(false, "tcp", port)
	check(false, "http", port)
	check(false, "nats", port)
}

func TestDockerfile(t *testing.T) {
	ignored := read(t, "deploy/Dockerfile.dockerignore")
	for _, dir := range []string{"deploy/secrets", "deploy/state", ".git"} {
		if !slices.Contains(strings.Split(ignored, "\n"), dir) {
			t.Errorf("%s gets into the image's build", dir)
		}
	}
	user := ""
	var packages []string
	for _, line := range strings.Split(strings.ReplaceAll(read(t, "deploy/Dockerfile"), "\\\n", " "), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "FROM":
			if user = ""; !strings.Contains(words[1], ":") || strings.HasSuffix(words[1], ":latest") {
				t.Errorf("%s is not pinned", words[1])
			}
		case "USER":
			user = words[1]
		case "ADD":
			t.Error("ADD unpacks and downloads; use COPY")
		case "COPY":
			for _, w := range words[1 : len(words)-1] {
				if _, err := os.Stat(path(w)); err != nil && !strings.HasPrefix(w, "--") && !strings.Contains(line, "--from=") {
					t.Errorf("COPY: %v", err)
				}
			}
		case "RUN":
			for _, w := range words {
				if strings.HasPrefix(w, "./cmd/") || strings.HasPrefix(w, "github.com/") {
					packages = append(packages, w)
				}
			}
		}
	}
	if user != "10001:10001" {
		t.Errorf("the image runs as %q", user)
	}
	cmd := exec.Command("go", append([]string{"list", "-f", "{{.Name}}"}, packages...)...)
	cmd.Dir = root
	out, err := cmd.Output()
	ok(t, err)
	if got := strings.Fields(string(out)); len(got) != 6 || slices.ContainsFunc(got, func(n string) bool { return n != "main" }) {
		t.Errorf("%q are %q, want six programs", packages, got)
	}
}
