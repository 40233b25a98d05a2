package inspect

import (
	"cmp"
	"context"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/records"
)

// Bounds of the search for related sessions: steps up, messages of the shard behind the first
// record, sessions shown.
const (
	treeSteps    = 16
	treeMessages = 1_000_000
	treeShown    = 100
)

// sessionTree is a session with its parent and child sessions.
type sessionTree struct {
	top      string
	children map[string][]records.SessionParent
	more     bool // there are more than were read
}

// findSessionTree finds the sessions linked to a session; nil without any. The links are in the call
// records of the child session.
func findSessionTree(ctx context.Context, db *read.Reader, tenant string, s evidencereader.Session) (*sessionTree, error) {
	tree := sessionTree{top: s.Session, children: map[string][]records.SessionParent{}}
	from := s.Rows[0].Seq
	for known := map[string]bool{tree.top: true}; len(known) < treeSteps; known[tree.top] = true {
		parent, first, err := parentOf(ctx, db, tenant, s.Shard, tree.top)
		if err != nil {
			return nil, err
		}
		if parent == nil || known[parent.Session] {
			break
		}
		tree.top = parent.Session
		if _, begun, err := parentOf(ctx, db, tenant, s.Shard, tree.top); err != nil {
			return nil, err
		} else if begun > 0 {
			first = begun
		}
		if first > 0 {
			from = min(from, first)
		}
	}
	list, err := records.New(db.Pool()).SessionParents(ctx, s.Shard, tenant, from, max(from+treeMessages, s.Rows[len(s.Rows)-1].Seq))
	if err != nil {
		return nil, err
	}
	tree.addFamily(s.Session, list)
	if len(tree.children) == 0 {
		return nil, nil
	}
	return &tree, nil
}

// addFamily adds the topmost session's descendants among a tenant's linked sessions, up to treeShown:
// first those on the way to this session and its own children, then the others level by level.
func (t *sessionTree) addFamily(this string, list []records.SessionParent) {
	children, links := map[string][]records.SessionParent{}, map[string]records.SessionParent{}
	for _, k := range list {
		children[k.Parent.Session] = append(children[k.Parent.Session], k)
		links[k.Session] = k
	}
	added := map[string]bool{t.top: true}
	add := func(k records.SessionParent) {
		switch {
		case added[k.Session]:
		case len(added) > treeShown:
			t.more = true
		default:
			added[k.Session] = true
			t.children[k.Parent.Session] = append(t.children[k.Parent.Session], k)
		}
	}
	for session, steps := this, 0; session != t.top && steps < treeSteps; steps++ {
		k, known := links[session]
		if !known {
			break
		}
		add(k)
		session = k.Parent.Session
	}
	for _, k := range children[this] {
		add(k)
	}
	for level := []string{t.top}; len(level) > 0 && !t.more; {
		var below []string
		for _, parent := range level {
			for _, k := range children[parent] {
				add(k)
			}
			for _, k := range t.children[parent] {
				below = append(below, k.Session)
			}
		}
		level = below
	}
}

// parentOf returns the parent named by a session's newest call record on a shard, and the first
// sequence that the record names; 0 without one.
func parentOf(ctx context.Context, db *read.Reader, tenant, shard, session string) (parent *events.CallParent, first uint64, err error) {
	rows, err := records.New(db.Pool()).LatestCalls(ctx, tenant, records.CallFilter{Session: session})
	for _, r := range rows {
		_, c, wrong := evidencereader.DecodeRow[events.Call](r)
		if r.Shard != shard || wrong != nil {
			continue
		}
		if c.Parent != nil {
			parent = c.Parent
			parent.Session = subject.TokenValue(parent.Session)
		}
		if len(c.Timeline) > 0 && (first == 0 || c.Timeline[0].Seq < first) {
			first = c.Timeline[0].Seq
		}
	}
	return parent, first, err
}

// print prints the tree of sessions below the topmost one.
func (t *sessionTree) print(p *ui.Printer, this string) {
	p.Printf("  %s\n", p.Paint(ui.Faint, "sessions that belong together, as the sub-agents themselves say:"))
	t.printBranch(p, this, t.top, "", 1, map[string]bool{})
	if t.more {
		p.Printf("    %s\n", p.Paint(ui.Faint, "and more"))
	}
	p.Printf("\n")
}

func (t *sessionTree) printBranch(p *ui.Printer, this, session, by string, depth int, shown map[string]bool) {
	if shown[session] || depth > treeSteps {
		return
	}
	shown[session] = true
	colour, mark := "", ""
	if session == this {
		colour, mark = ui.Bold, "  <- this one"
	}
	p.Printf("    %s%s%s%s\n", strings.Repeat("  ", depth-1), p.Paint(colour, ui.Clean(session, 80)), p.Paint(ui.Faint, by), mark)
	for _, k := range t.children[session] {
		by := "  by " + cmp.Or(parentWords[k.Parent.By], k.Parent.By)
		if k.Parent.CallID != "" {
			by += ", " + k.Parent.CallID
		}
		t.printBranch(p, this, k.Session, ui.Clean(by, 120), depth+1, shown)
	}
}
