package deploy_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/tools/docgen/reference"
)

// ours are the pages that these tests hold against the code.
var ours = []string{"CONTRIBUTING.md", "docs/README.md", "docs/approvals.md", "docs/architecture.md", "docs/auditing.md", "docs/changing-policies.md",
	"docs/compliance.md", "docs/conformance.md", "docs/evidence-format.md", "docs/formats.md", "docs/gateway.md", "docs/glossary.md", "docs/hooks.md", "docs/investigating.md",
	"docs/mandates.md", "docs/mcp.md", "docs/opentelemetry.md", "docs/operating.md", "docs/performance.md", "docs/policies.md", "docs/publishers.md",
	"docs/redaction.md", "docs/retention.md", "docs/runtimes/README.md", "docs/runtimes/aaep.md", "docs/runtimes/aana.md", "docs/runtimes/agenthook.md", "docs/runtimes/aump.md",
	"docs/runtimes/handoff.md", "docs/runtimes/tool.md", "docs/sdk.md", "docs/security-tests.md", "docs/security.md", "docs/sizing.md", "docs/start.md", "docs/subscribers.md"}

// block is a fenced part of a page.
type block struct {
	file, info, text string
	line             int
}

func blocks(t testing.TB, file string) (list []block) {
	t.Helper()
	var b *block
	for i, line := range strings.Split(read(t, file), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case b == nil && strings.HasPrefix(trimmed, "```"):
			b = &block{file: file, info: strings.TrimPrefix(trimmed, "```"), line: i + 2}
		case b != nil && trimmed == "```":
			list, b = append(list, *b), nil
		case b != nil:
			b.text += line + "\n"
		}
	}
	if b != nil {
		t.Errorf("%s:%d: a block without an end", file, b.line)
	}
	return list
}

// rows gives the cells of a page's table that follows a heading line.
func rows(t testing.TB, file, after string) (list [][]string) {
	t.Helper()
	_, rest, found := strings.Cut(read(t, file), after+"\n")
	if !found {
		t.Fatalf("%s has no line %q", file, after)
	}
	for _, line := range strings.Split(rest, "\n")[1:] { // the rule below the head
		if !strings.HasPrefix(strings.TrimSpace(line), "|") {
			break
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		list = append(list, cells)
	}
	if len(list) == 0 {
		t.Fatalf("%s: no table after %q", file, after)
	}
	return list
}

var code = regexp.MustCompile("`([^`]+)`")

func codes(text string) (list []string) {
	for _, m := range code.FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	return list
}

// TestCommandsInDocs parses every command line of ours that a page shows, in its text, too. TestPages runs the lines of
// shell blocks.
func TestCommandsInDocs(t *testing.T) {
	pages := append([]string{"README.md", "deploy/compose.yaml", "deploy/nats/cluster.conf", "deploy/make-secrets.sh"}, ours...)
	inline := regexp.MustCompile("`((?:bin/)?countersign(?:-bench)? [a-z][^`]*)`")
	seen := 0
	for _, page := range pages {
		text := read(t, page)
		var lines []string
		for _, b := range blocks(t, page) {
			if b.info == "sh" {
				lines = append(lines, strings.Split(b.text, "\n")...)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			lines = append(lines, m[1])
		}
		if !strings.HasSuffix(page, ".md") {
			lines = strings.Split(strings.ReplaceAll(text, "#", " "), "\n")
		}
		for _, line := range lines {
			program, argv := commandOf(line)
			if argv == nil {
				continue
			}
			seen++
			if slices.ContainsFunc(argv, func(a string) bool { return a == strings.ToUpper(a) && a == "COMMAND" }) {
				continue // countersign COMMAND --help
			}
			if err := accepts(t, program, nil, argv); err != nil {
				t.Errorf("%s: %s %s: %v", page, program, strings.Join(argv, " "), err)
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d command lines were found", seen)
	}
}

var (
	assignment = regexp.MustCompile(`^[A-Z_]+=\S*$`)
	word       = regexp.MustCompile(`'[^']*'|\S+`)
)

// commandOf gives the program and the arguments of a command line of countersign or
// countersign-bench, nil if the line holds none.
func commandOf(line string) (program string, argv []string) {
	line, _, _ = strings.Cut(line, " #")
	if _, after, piped := strings.Cut(line, " | "); piped {
		line = after
	}
	line, _, _ = strings.Cut(line, " < ")
	words := word.FindAllString(strings.TrimSuffix(strings.TrimSpace(line), "&"), -1)
	for len(words) > 0 && assignment.MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) < 2 || strings.HasPrefix(words[0], "/") || strings.HasPrefix(words[1], "(") {
		return "", nil
	}
	if program = filepath.Base(words[0]); program != "countersign" && program != "countersign-bench" {
		return "", nil
	}
	return program, words[1:]
}

// TestEnvironmentInDocs: every variable named in a page exists.
func TestEnvironmentInDocs(t *testing.T) {
	known := map[string]bool{}
	for _, p := range reference.Programs() {
		maps.Copy(known, envOf(t, p.Name))
	}
	for _, file := range []string{natsConf, "deploy/nats/cluster.conf", usersXML, "test/chaos_test.go", "internal/service/correlator/chaos_test.go"} {
		for _, name := range envName.FindAllString(read(t, file), -1) {
			known[name] = true
		}
	}
	for _, page := range append(files(t, "deploy", ".yaml"), ours...) {
		for _, name := range envName.FindAllString(read(t, page), -1) {
			if !known[name] {
				t.Errorf("%s: nothing reads %s", page, name)
			}
		}
	}
}

// TestLinksInDocs: links lead to files and headings that exist.
func TestLinksInDocs(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	for _, page := range append(files(t, "docs/reference", ".md"), ours...) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor := m[1], strings.TrimPrefix(m[2], "#")
			if strings.Contains(target, "://") {
				continue
			}
			file := filepath.Join(filepath.Dir(page), target)
			if target == "" {
				file = page
			}
			if _, err := os.Stat(path(file)); err != nil {
				t.Errorf("%s: %v", page, err)
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, file)), anchor) {
				t.Errorf("%s: %s has no heading #%s", page, file, anchor)
			}
		}
	}
}

func anchors(text string) (list []string) {
	for _, line := range strings.Split(text, "\n") {
		if title, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); is && strings.HasPrefix(line, "#") {
			title = regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(title), "")
			list = append(list, strings.ReplaceAll(title, " ", "-"))
		}
	}
	return list
}
