package e2e_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	hookschema "github.com/countersign-dev/countersign/schemas/agenthook"
)

// block is a shell block of a page.
type block struct {
	page, section string
	lines         []pageLine
	shows         []string // what the page shows as output, directly below the block
}

// pageLine is a command as a reader types it, with the exit code that its comment promises.
type pageLine struct {
	text string
	code int
}

func (b block) place() string { return b.page + "#" + b.section }

var (
	fence    = regexp.MustCompile("(?m)^ *```([a-z]*)\n((?s:.*?))^ *```$|^## (.+)$")
	comment  = regexp.MustCompile(`\s+#\s.*$`)
	promised = regexp.MustCompile(`\bexit ([0-9])$`)
)

// readBlocks reads the shell blocks of a page.
func readBlocks(t *testing.T, page string) (list []block) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, page))
	ok(t, err)
	text, section, end := string(raw), "", 0
	for _, at := range fence.FindAllStringSubmatchIndex(text, -1) {
		if at[6] >= 0 {
			section = text[at[6]:at[7]]
			continue
		}
		language, body, near := text[at[2]:at[3]], text[at[4]:at[5]], end > 0 && strings.TrimSpace(text[end:at[0]]) == ""
		switch {
		case language == "sh":
			list, end = append(list, block{page: page, section: section, lines: readLines(body)}), at[1]
		case language == "text" && near:
			list[len(list)-1].shows = strings.Split(strings.TrimSpace(body), "\n")
		case language == "" && !strings.HasPrefix(page, "docs/reference/") && regexp.MustCompile(`(?m)^ *(bin/)?countersign(-mcp)? `).MatchString(body):
			t.Errorf("%s: this block has commands and is not marked as sh:\n%s", page, body)
		}
	}
	return list
}

func readLines(body string) (list []pageLine) {
	for text := range strings.Lines(strings.ReplaceAll(body, "\\\n", " ")) {
		l := pageLine{text: strings.TrimSpace(comment.ReplaceAllString(strings.TrimRight(text, "\n"), ""))}
		if m := promised.FindStringSubmatch(strings.TrimSpace(text)); m != nil {
			l.code, _ = strconv.Atoi(m[1])
		}
		if l.text != "" {
			list = append(list, l)
		}
	}
	return list
}

// pagesWithBlocks lists the pages that have shell blocks.
func pagesWithBlocks(t *testing.T) (list []block) {
	t.Helper()
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	ok(t, filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if filepath.Ext(path) == ".md" {
			page, _ := filepath.Rel(root, path)
			pages = append(pages, page)
		}
		return err
	}))
	for _, page := range pages {
		list = append(list, readBlocks(t, page)...)
	}
	return list
}

// Each shell block of each page is typed in one place, and the tables speak of lines that the pages have.
func TestPagesAreTyped(t *testing.T) {
	t.Parallel()
	all := pagesWithBlocks(t)
	for _, b := range all {
		places := 0
		if _, elsewhere := typedElsewhere[b.place()]; elsewhere {
			places++
		}
		for p := range allPages() {
			if p.has(b) {
				places++
			}
		}
		if places != 1 {
			t.Errorf("a block of %s is typed in %d places", b.place(), places)
		}
	}
	some := func(what string, is func(b block, line string) bool) {
		for _, b := range all {
			if slices.ContainsFunc(b.lines, func(l pageLine) bool { return is(b, l.text) }) {
				return
			}
		}
		t.Errorf("no page has a line for %q any more", what)
	}
	for begin := range notTyped {
		some(begin, func(_ block, line string) bool { return strings.HasPrefix(line, begin) })
	}
	for begin := range followers {
		some(begin, func(_ block, line string) bool { return strings.HasPrefix(line, begin) })
	}
	for part := range printed {
		some(part, func(_ block, line string) bool { return strings.Contains(line, part) })
	}
	for place := range typedElsewhere {
		some(place, func(b block, _ string) bool { return b.place() == place })
	}
	for p := range allPages() {
		some(p.place, func(b block, _ string) bool { return p.has(b) })
		for word := range p.words {
			some(p.place+" "+word, func(b block, line string) bool { return p.has(b) && strings.Contains(line, word) })
		}
	}
}

var eventOfPage = regexp.MustCompile(`/event -d '([^']*)'`)

// An event that a page sends is one that is a finding to nobody.
func TestEventsOfPages(t *testing.T) {
	found := 0
	for _, b := range pagesWithBlocks(t) {
		for _, l := range b.lines {
			m := eventOfPage.FindStringSubmatch(l.text)
			if m == nil {
				continue
			}
			found++
			e, err := agenthook.Decode([]byte(m[1]), strictjson.DefaultLimits)
			ok(t, err)
			if broken := hookschema.Strict(e.Doc); len(broken) > 0 {
				t.Errorf("%s: %v", b.place(), broken)
			}
		}
	}
	if found == 0 {
		t.Error("no page sends an event")
	}
}

// The commands of all pages, typed as they are printed.
func TestPages(t *testing.T) {
	t.Parallel()
	needSystem(t)
	needProgram(t, "curl")
	needProgram(t, "jq")
	nats := natsTool(t)
	for _, g := range pageGroups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			g.typePages(t, nats)
		})
	}
}

// stage is where a group is typed: a reader's folder, with the system that a line of the pages has started.
type stage struct {
	*system
	env     []string
	started string // the line that started the system
	shell   *shell // in this shell
	events  int
}

// typePages types the blocks of a group, each page in a shell of its own.
func (g pageGroup) typePages(t *testing.T, nats string) {
	dir := readerDir(t)
	st := &stage{system: &system{dir: dir, data: filepath.Join(dir, "data"), ready: filepath.Join(dir, "ready.json")}}
	st.env = []string{"NATSTOOL=" + nats, "COLLECTOR=" + receiveOTLP(t).URL}
	if g.ready {
		st.env = append(st.env, "COUNTERSIGN_READY_FILE="+st.ready)
	}
	for _, p := range g.pages {
		begun := time.Now()
		st.typePage(t, p)
		t.Logf("%s: %.1f s", p.place, time.Since(begun).Seconds())
	}
}

// natsFunction gives the tool of NATS the credentials of the user that may do what a line does.
const natsFunction = `nats() {
  case $2 in gov.admit.*|gov.mandates.*) as=runtime;; *) as=subscriber;; esac
  $NATSTOOL $(jq -r ".roles.$as as \$r | \"--server \(.nats_url) --user \(\$r.user) --password \(\$r.password) --inbox-prefix \(\$r.inbox_prefix)\"" ready.json) --timeout 30s "$@"
}`

func (st *stage) typePage(t *testing.T, p page) {
	t.Helper()
	sh := shellIn(t, st.dir, st.env...)
	sh.code(t, natsFunction)
	if p.before != "" {
		if out, code := st.typeLine(t, sh, p.before); code != 0 {
			t.Fatalf("%s: %s: exit %d\n%s", p.place, p.before, code, out)
		}
	}
	file, _, _ := strings.Cut(p.place, "#")
	var following []followed
	for _, b := range readBlocks(t, file) {
		if !p.has(b) {
			continue
		}
		all := ""
		for _, l := range b.lines {
			if !st.typed(l.text) {
				continue
			}
			line := replaceWords(l.text, p.words)
			if begin := matching(followers, l.text); begin != "" {
				if f := st.follow(t, sh, line, followers[begin]); f.line != st.started { // a page may stop the system
					following = append(following, f)
				}
				continue
			}
			out, code := st.typeLine(t, sh, line)
			if code != l.code {
				t.Errorf("%s: %s\nexit %d, want %d:\n%s", b.place(), line, code, l.code, out)
			}
			for part, want := range printed {
				if strings.Contains(l.text, part) && !strings.Contains(out, want) {
					t.Errorf("%s: %s prints\n%s\nwant %s", b.place(), line, out, want)
				}
			}
			all += out
		}
		if err := showsLines(all, b.shows); err != nil {
			t.Errorf("%s: %v", b.place(), err)
		}
	}
	for _, f := range following {
		st.hear(t, sh, f)
	}
	if st.shell != sh {
		sh.end(t)
	}
}

// typeLine types a line. Readers look for what they have published a few seconds later, when it is found and signed.
func (st *stage) typeLine(t *testing.T, sh *shell, line string) (out string, code int) {
	t.Helper()
	out, code = sh.code(t, line)
	if strings.Contains(line, "countersign publish ") {
		st.settle(t)
		signed(t, st.system)
	}
	return out, code
}

// typed says whether a line is to be typed here.
func (st *stage) typed(line string) bool {
	return matching(notTyped, line) == "" && strings.TrimSuffix(line, " &") != st.started
}

// matching returns the beginning in a table that a line has.
func matching[V any](table map[string]V, line string) string {
	for begin := range table {
		if strings.HasPrefix(line, begin) {
			return begin
		}
	}
	return ""
}

// replaceWords puts what a reader would write in the place of words that only stand for something.
func replaceWords(line string, words map[string]string) string {
	for word, is := range words {
		line = strings.ReplaceAll(line, word, is)
	}
	return line
}

// followed is a line that does not end: its process, the file with what it prints, and what it must print yet.
type followed struct{ line, pid, file, prints string }

// follow types a line that does not end, and waits until it says that it has begun.
func (st *stage) follow(t *testing.T, sh *shell, line string, f follower) followed {
	t.Helper()
	line = strings.TrimSuffix(line, " &")
	file := filepath.Join(st.dir, fmt.Sprintf("prints-%p-%d", sh, sh.lines))
	pid, _ := sh.code(t, line+" > "+file+" 2>&1 & echo $!")
	eventually(t, line, func() error { return holds(file, f.begins) })
	if strings.Contains(line, "countersign up ") {
		st.started, st.shell = line, sh
	}
	return followed{line, strings.TrimSpace(pid), file, f.prints}
}

// hear makes news until a line that follows them has printed some. The line must not have ended.
func (st *stage) hear(t *testing.T, sh *shell, f followed) {
	t.Helper()
	if _, code := sh.code(t, "kill -0 "+f.pid); code != 0 {
		text, _ := os.ReadFile(f.file)
		t.Errorf("%s has ended, and prints:\n%s", f.line, text)
		return
	}
	eventually(t, f.line, func() error {
		if holds(f.file, f.prints) != nil {
			st.makeNews(t)
		}
		return holds(f.file, f.prints)
	})
}

// makeNews has a call of the session s-1 denied and run anyway, and one of a new session wait for a person.
func (st *stage) makeNews(t *testing.T) {
	t.Helper()
	st.events++
	r, denied := st.runtime(t), deniedCall("s-1", fmt.Sprint("c-news-", st.events))
	r.admit(t, "agenthook", denied.bytes())
	r.publish(t, denied)
	r.publish(t, postToolUse(denied))
	r.admit(t, "agenthook", askedCall(fmt.Sprint("s-news-", st.events), "c-1").bytes())
}

func holds(file, want string) error {
	text, err := os.ReadFile(file)
	if err == nil && !strings.Contains(string(text), want) {
		err = errorf("it prints:\n%s\nwant %s", text, want)
	}
	return err
}

// showsLines looks for lines of a page among those that a command prints, in order. What differs from run to run may
// differ, and "…" stands for any text.
func showsLines(out string, lines []string) error {
	rest := strings.Split(out, "\n")
	for _, line := range lines {
		like := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(shape(line)), "…", ".*") + "$")
		at := slices.IndexFunc(rest, func(l string) bool { return like.MatchString(shape(l)) })
		if at < 0 {
			return errorf("no line is printed, or none in this place, like\n%s\nbut\n%s", line, out)
		}
		rest = rest[at+1:]
	}
	return nil
}

// What differs from run to run: ids of workflows and sessions, hashes, times and durations, and how many messages of
// others lie between two.
var (
	messagesBetween = regexp.MustCompile(` \+[0-9]+ `)
	changingID      = regexp.MustCompile(`(^| )(wf-)?[0-9a-f]{8}(-[0-9a-f…-]*)?( |$)`)
	changingNumber  = regexp.MustCompile(`(^| )[0-9][0-9.:msh-]*( (ms|s|µs)\b)?`)
)

// shape is a line without what differs from run to run, with single spaces.
func shape(line string) string {
	line = messagesBetween.ReplaceAllString(strings.Join(strings.Fields(line), " "), " ")
	return changingNumber.ReplaceAllString(changingID.ReplaceAllString(line, "${1}${2}ID$4"), "${1}N")
}
