package main

import (
	"context"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/storage"
)

// How far relatives of a session are looked for: so many steps up, so many
// messages of the shard behind the first of them, so many sessions.
const (
	kinSteps    = 16
	kinMessages = 1_000_000
	kinShown    = 100
)

// family is a session with those that it belongs to and that belong to it.
type family struct {
	top      string
	children map[string][]storage.SessionParent
	more     bool // there are more than were read
}

// familyOf looks for the relatives of a session; nil if it has none. What says who
// belongs to whom are the call records of the one that belongs.
func familyOf(ctx context.Context, db *storage.DB, tenant string, s evidencereader.Session) (*family, error) {
	f := family{top: s.Session, children: map[string][]storage.SessionParent{}}
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
	list, err := db.SessionParents(ctx, s.Shard, tenant, from, max(from+kinMessages, s.Rows[len(s.Rows)-1].Seq), kinShown+1)
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

func newestOf(list []storage.SessionParent) ([]storage.SessionParent, bool) {
	if len(list) > kinShown {
		return list[:kinShown], true
	}
	return list, false
}

// parentOf is what a session's newest call record on a shard says that it belongs
// to, and the first sequence that record names; 0 if there is none.
func parentOf(ctx context.Context, db *storage.DB, tenant, shard, session string) (parent *events.CallParent, first uint64, err error) {
	rows, err := db.LatestCalls(ctx, tenant, storage.CallFilter{Session: session})
	for _, r := range rows {
		_, c, wrong := bodyOf[events.Call](r)
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

// print writes the tree of sessions below the one that all belong to.
func (f *family) print(p *printer, this string) {
	p.printf("  %s\n", p.paint(faint, "sessions that belong together, as the sub-agents themselves say:"))
	f.branch(p, this, f.top, "", 1, map[string]bool{})
	if f.more {
		p.printf("    %s\n", p.paint(faint, "and more"))
	}
	p.printf("\n")
}

func (f *family) branch(p *printer, this, session, by string, depth int, shown map[string]bool) {
	if shown[session] || depth > kinSteps {
		return
	}
	shown[session] = true
	colour, mark := "", ""
	if session == this {
		colour, mark = bold, "  <- this one"
	}
	p.printf("    %s%s%s%s\n", strings.Repeat("  ", depth-1), p.paint(colour, clean(session, 80)), p.paint(faint, by), mark)
	for _, k := range f.children[session] {
		by := "  by " + or(parentWords[k.Parent.By], k.Parent.By)
		if k.Parent.CallID != "" {
			by += ", " + k.Parent.CallID
		}
		f.branch(p, this, k.Session, clean(by, 120), depth+1, shown)
	}
}
