package policycmd

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/service/policybucket"
)

type policyListCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

// policyFile is one file in force.
type policyFile struct {
	Name     string   `json:"name"`
	Revision uint64   `json:"revision"` // of the whole set; decisions name it
	Bytes    int      `json:"bytes"`
	Created  string   `json:"created,omitempty"`
	Policies []string `json:"policies"`
}

func (c *policyListCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, held, err := openInForce(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	list, err := PolicyFiles(held)
	if err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		fmt.Fprintln(io.Out, "no policy is in force: every request is denied (countersign policy push DIR)")
		return nil
	}
	p := ui.NewPrinter(io.Out)
	for _, f := range list {
		p.Printf("%s revision %-6d %6d B %s\n", ui.Pad(f.Name, 32), f.Revision, f.Bytes, who(held))
	}
	// Problems of the whole set are printed beside the list.
	p = ui.NewPrinter(io.Err)
	docs, _ := held.Documents()
	if _, err := policy.Compile(docs); err != nil {
		p.Printf("%s: every request is denied: %s\n", p.Paint(ui.Red, "these policies do not compile"), ui.CleanLines(err.Error()))
	}
	for _, key := range held.Mixed() {
		p.Printf("%s %s was put or deleted by itself after the push; the next push supersedes it\n", p.Paint(ui.Yellow, "note:"), ui.Clean(key, 60))
	}
	return nil
}

// PolicyFiles lists the files in force.
func PolicyFiles(held *policybucket.BucketState) ([]policyFile, error) {
	docs, err := held.Documents()
	if err != nil {
		return nil, fmt.Errorf("what is in force: %w", err)
	}
	list := []policyFile{}
	for _, d := range docs {
		f := policyFile{Name: d.Name, Revision: held.Revision, Bytes: len(d.Data), Policies: []string{}}
		if !held.Set.PushedAt.IsZero() {
			f.Created = held.Set.PushedAt.UTC().Format(time.DateTime)
		}
		if set, err := policy.Compile([]policy.Document{d}); err == nil {
			f.Policies = set.Names()
		}
		list = append(list, f)
	}
	return list, nil
}

func who(held *policybucket.BucketState) string {
	if held.SetAt == 0 || len(held.Mixed()) > 0 {
		return "  put file by file"
	}
	return pushedBy(held.Set)
}

func pushedBy(s events.PolicySet) string {
	text := ""
	if !s.PushedAt.IsZero() {
		text += "  " + s.PushedAt.UTC().Format("2006-01-02 15:04:05Z")
	}
	if s.Author != "" {
		text += "  " + ui.Clean(s.Author, 40)
	}
	if s.Message != "" {
		text += "  " + ui.Clean(s.Message, 200)
	}
	return text
}

type policyShowCmd struct {
	target.Flags
	Revision uint64 `help:"This revision instead of what is in force." placeholder:"N"`
	JSON     bool   `name:"json" help:"Print JSON."`
	Name     string `arg:"" optional:"" help:"Only this file."`
}

// shownSet is the output of 'policy show'.
type shownSet struct {
	Revision  uint64                  `json:"revision"`
	Digest    string                  `json:"digest,omitempty"`
	Error     string                  `json:"error,omitempty"`
	Author    string                  `json:"author,omitempty"`
	Message   string                  `json:"message,omitempty"`
	PushedAt  events.Time             `json:"pushed_at,omitzero"`
	Documents []events.PolicyDocument `json:"documents"`
}

func (c *policyShowCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	s, err := c.read(ctx, b)
	if err != nil {
		return err
	}
	if set, err := policy.Compile(policybucket.DecodeDocuments(s.Documents)); err != nil {
		s.Error = err.Error()
	} else {
		s.Digest = set.Digest()
	}
	if c.Name != "" {
		if s.Documents = only(s.Documents, c.Name); len(s.Documents) == 0 {
			return fmt.Errorf("revision %d has no file %q (countersign policy list)", s.Revision, c.Name)
		}
	}
	if c.JSON {
		return ui.WriteJSON(io, s)
	}
	p := ui.NewPrinter(io.Out)
	for _, d := range s.Documents {
		p.Printf("%s\n%s\n", p.Paint(ui.Bold, "# "+ui.Clean(d.Name, 120)), ui.CleanLines(d.Text))
	}
	return nil
}

func (c *policyShowCmd) read(ctx context.Context, b *PolicyBucket) (shownSet, error) {
	if c.Revision > 0 {
		p, err := b.revision(ctx, c.Revision)
		return shownSet{Revision: p.Revision, Author: p.Set.Author, Message: p.Set.Message, PushedAt: p.Set.PushedAt, Documents: p.Set.Documents}, err
	}
	held, err := b.InForce(ctx)
	if err != nil {
		return shownSet{}, err
	}
	docs, err := held.Documents()
	s := shownSet{Revision: held.Revision, Documents: policybucket.EncodeDocuments(docs)}
	if len(held.Mixed()) == 0 {
		s.Author, s.Message, s.PushedAt = held.Set.Author, held.Set.Message, held.Set.PushedAt
	}
	return s, err
}

func only(list []events.PolicyDocument, name string) (out []events.PolicyDocument) {
	for _, d := range list {
		if d.Name == name {
			out = append(out, d)
		}
	}
	return out
}

type policyHistoryCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON, oldest first."`
}

// pastPush is one line of the history.
type pastPush struct {
	Revision   uint64      `json:"revision"`
	StoredAt   events.Time `json:"stored_at"` // the server's time; pushed_at is the author's
	PushedAt   events.Time `json:"pushed_at,omitzero"`
	Author     string      `json:"author,omitempty"`
	Message    string      `json:"message,omitempty"`
	RollbackTo uint64      `json:"rollback_to,omitempty"`
	Files      int         `json:"files"`
	Digest     string      `json:"digest,omitempty"`
	Error      string      `json:"error,omitempty"`
	Deleted    bool        `json:"deleted,omitempty"`
	InForce    bool        `json:"in_force"`
}

func (c *policyHistoryCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openPolicies(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	list, err := b.pushes(ctx)
	if err != nil {
		return err
	}
	out := []pastPush{}
	for i, p := range list {
		out = append(out, pastOf(p, i == len(list)-1))
	}
	if c.JSON {
		return ui.WriteJSON(io, out)
	}
	if len(out) == 0 {
		fmt.Fprintln(io.Out, "no set of policies was ever pushed (countersign policy push DIR)")
	}
	p := ui.NewPrinter(io.Out)
	for _, r := range out {
		state := fmt.Sprintf("%d files", r.Files)
		switch {
		case r.Deleted:
			state = p.Paint(ui.Red, "deleted")
		case r.Error != "":
			state = p.Paint(ui.Red, "does not compile")
		}
		mark := " "
		if r.InForce {
			mark = p.Paint(ui.Green, "*")
		}
		p.Printf("%s %6d  %s  %s %s  %s\n", mark, r.Revision, p.Paint(ui.Faint, r.StoredAt.UTC().Format("2006-01-02 15:04:05Z")),
			ui.Pad(cmp.Or(r.Author, "-"), 20), state, ui.Clean(r.Message, 200))
	}
	return nil
}

func pastOf(p pushed, newest bool) pastPush {
	r := pastPush{Revision: p.Revision, StoredAt: events.At(p.At), PushedAt: p.Set.PushedAt, Author: p.Set.Author, Message: p.Set.Message,
		RollbackTo: p.Set.RollbackTo, Files: len(p.Set.Documents), Deleted: p.Deleted, InForce: newest && !p.Deleted}
	if p.Deleted {
		return r
	}
	set, err := policy.Compile(policybucket.DecodeDocuments(p.Set.Documents))
	if p.Err != nil {
		err = p.Err
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Digest = set.Digest()
	return r
}
