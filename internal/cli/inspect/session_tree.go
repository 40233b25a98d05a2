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
	kinSteps    = 16
	kinMessages = 1_000_000
	kinShown    = 100
)

// family is a session with its parent and child sessions.
type family struct {
	top      string
	children map[string][]records.SessionParent
	more     bool // there are more than were read
}

// familyOf finds the sessions linked to a session; nil without any. The links are in the call
// records of the child session.
func familyOf(ctx context.Context, db *read.Reader, tenant string, s evidencereader.Session) (*family, error) {
	f := family{top: s.Session, children: map[string][]records.SessionParent{}}
	from := s.Rows[0].Seq
	for known := map[string]bool{f.top: true}; len(known) < kinSteps; known[f.top] = true {
		parent, first, err := parentOf(ctx, db, tenant, s.Shard, f.top)
		if err != nil {
			return nil, err
		}
		if parent == nil || known[parent.Session] {
			break
		}
		f.top = parent.Session
		if _, begun, err := parentOf(ctx, db, tenant, s.Shard, f.top); err != nil {
			return nil, err
		} else if begun > 0 {
			first = begun
		}
		if first > 0 {
			from = min(from, first)
		}
	}
	list, err := records.New(db.Pool()).SessionParents(ctx, s.Shard, tenant, from, max(from+kinMessages, s.Rows[len(s.Rows)-1].Seq), kinShown+1)
	if err != nil {
		return nil, err
	}
	list, f.more = newestOf(list)
	for _, k := range list {
		if k.Session != f.top {
			f.children[k.Parent.Session] = append(f.children[k.Parent.Session], k)
		}
	}
	if len(f.children[f.top]) == 0 {
		return nil, nil
	}
	return &f, nil
}

func newestOf(list []records.SessionParent) ([]records.SessionParent, bool) {
	if len(list) > kinShown {
		return list[:kinShown], true
	}
	return list, false
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
func (f *family) print(p *ui.Printer, this string) {
	p.Printf("  %s\n", p.Paint(ui.Faint, "sessions that belong together, as the sub-agents themselves say:"))
	f.branch(p, this, f.top, "", 1, map[string]bool{})
	if f.more {
		p.Printf("    %s\n", p.Paint(ui.Faint, "and more"))
	}
	p.Printf("\n")
}

func (f *family) branch(p *ui.Printer, this, session, by string, depth int, shown map[string]bool) {
	if shown[session] || depth > kinSteps {
		return
	}
	shown[session] = true
	colour, mark := "", ""
	if session == this {
		colour, mark = ui.Bold, "  <- this one"
	}
	p.Printf("    %s%s%s%s\n", strings.Repeat("  ", depth-1), p.Paint(colour, ui.Clean(session, 80)), p.Paint(ui.Faint, by), mark)
	for _, k := range f.children[session] {
		by := "  by " + cmp.Or(parentWords[k.Parent.By], k.Parent.By)
		if k.Parent.CallID != "" {
			by += ", " + k.Parent.CallID
		}
		f.branch(p, this, k.Session, ui.Clean(by, 120), depth+1, shown)
	}
}
