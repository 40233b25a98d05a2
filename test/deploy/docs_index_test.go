package deploy_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestEveryPageIsInTheIndex: docs/README.md leads to every page.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, dir := range []string{"docs", "docs/runtimes"} {
		list, err := os.ReadDir(path(dir))
		ok(t, err)
		for _, f := range list {
			page := strings.TrimPrefix(dir+"/"+f.Name(), "docs/")
			if strings.HasSuffix(page, ".md") && page != "README.md" && !strings.Contains(index, "("+page+")") {
				t.Errorf("docs/README.md does not lead to %s", page)
			}
		}
	}
}

// TestExamplesInDocs: the samples that command lines name are there.
func TestExamplesInDocs(t *testing.T) {
	sample := regexp.MustCompile(`(?:^|\s)(examples/[a-z-]+(?:/[a-z-]+\.[a-z]+)?)`)
	seen := map[string]bool{}
	for _, page := range append([]string{"README.md"}, ours...) {
		for _, b := range blocks(t, page) {
			if b.info != "sh" {
				continue
			}
			for _, m := range sample.FindAllStringSubmatch(b.text, -1) {
				seen[m[1]] = true
				if _, err := os.Stat(path(m[1])); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			}
		}
	}
	requests, err := filepath.Glob(path("examples/requests/*.json"))
	ok(t, err)
	for _, f := range requests {
		if name := "examples/requests/" + filepath.Base(f); !seen[name] {
			t.Errorf("no page runs %s", name)
		}
	}
}

// walkToken is a file or a function that a walk names.
var walkToken = regexp.MustCompile("`([A-Za-z][\\w./]*)`")

// TestWalksInDocs: every file of the walks through the code is there, has the
// functions that are named behind it, and the files are as many as is said.
func TestWalksInDocs(t *testing.T) {
	_, text, found := strings.Cut(read(t, "docs/architecture.md"), "## Three walks through the code\n")
	text, _, _ = strings.Cut(text, "\n## ")
	walks := strings.Split(text, "\n### ")[1:]
	if !found || len(walks) != 3 {
		t.Fatalf("docs/architecture.md has %d walks", len(walks))
	}
	for _, walk := range walks {
		title, body, _ := strings.Cut(walk, "\n")
		var files []string
		source := ""
		for _, m := range walkToken.FindAllStringSubmatch(body, -1) {
			switch name := m[1]; {
			case strings.HasSuffix(name, ".go"):
				source = read(t, name)
				if !slices.Contains(files, name) {
					files = append(files, name)
				}
			case source != "" && !regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?`+name+`[\[(]`).MatchString(source):
				t.Errorf("%s: %s has no function %s", title, files[len(files)-1], name)
			}
		}
		if said := strconv.Itoa(len(files)) + " files."; !strings.Contains(body, said) {
			t.Errorf("%s: it names %s", title, said)
		}
	}
}

// contributedFile is a file or a folder that an example of CONTRIBUTING names.
var contributedFile = regexp.MustCompile("`([a-z]+/[\\w./<>]+)`")

// TestContributingNamesFiles: what the worked examples of CONTRIBUTING name is there, for a protocol
// that is in every stage.
func TestContributingNamesFiles(t *testing.T) {
	_, text, found := strings.Cut(read(t, "CONTRIBUTING.md"), "## Three worked examples\n")
	text, _, end := strings.Cut(text, "\n## ")
	if !found || !end {
		t.Fatal("CONTRIBUTING.md has no worked examples")
	}
	examples := strings.Split(text, "\n### ")[1:]
	if len(examples) < 3 {
		t.Errorf("%d examples", len(examples))
	}
	for _, example := range examples {
		named := contributedFile.FindAllStringSubmatch(example, -1)
		if len(named) < 3 {
			t.Errorf("the example %.20q names %d files", example, len(named))
		}
		for _, m := range named {
			if _, err := os.Stat(path(strings.ReplaceAll(m[1], "<name>", "agenthook"))); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestReadersOfPages: every page begins with whom it is for, and the index gives each of its
// readers at most five pages.
func TestReadersOfPages(t *testing.T) {
	for _, page := range ours {
		if strings.HasSuffix(page, "docs/README.md") {
			continue
		}
		if begin := strings.Split(read(t, page), "\n"); len(begin) < 3 || !strings.HasPrefix(begin[2], "For ") {
			t.Errorf("%s does not begin with whom it is for", page)
		}
	}
	readers := strings.Split(read(t, "docs/README.md"), "\n|---|---|\n")[1:]
	for _, rows := range readers {
		rows, _, _ = strings.Cut(rows, "\n\n")
		if n := strings.Count(rows, "\n") + 1; n > 5 {
			t.Errorf("docs/README.md gives one reader %d pages:\n%s", n, rows)
		}
	}
	if len(readers) < 6 {
		t.Errorf("docs/README.md has %d readers", len(readers))
	}
}
