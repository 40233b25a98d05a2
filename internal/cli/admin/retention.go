package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/streams"
)

// RetentionCmd is `countersign retention`.
type RetentionCmd struct {
	Show    retentionShowCmd    `cmd:"" help:"Show a tenant's retention policy, its legal holds and its erasures."`
	Hold    retentionHoldCmd    `cmd:"" help:"Place a legal hold on a session, on a data subject, or without either on the whole tenant: nothing of it is erased while it stands."`
	Release retentionReleaseCmd `cmd:"" help:"Take a legal hold away."`
	Erase   retentionEraseCmd   `cmd:"" help:"Say what erasing a session or a data subject would destroy; with --yes, do it."`
	Lint    retentionLintCmd    `cmd:"" help:"Say what is wrong with a retention policy, offline."`
	Push    retentionPushCmd    `cmd:"" help:"Put a tenant's retention policy in force."`
	Remove  retentionRemoveCmd  `cmd:"" help:"Take the tenant's policy out of force: everything is kept."`
}

// RetentionBucket gives an operator access to the retention state and policy of one tenant.
type RetentionBucket struct{ system.Bucket }

func openRetention(ctx context.Context, f target.Flags) (*RetentionBucket, error) {
	b, err := system.OpenBucket(ctx, f, streams.BucketRetention)
	return &RetentionBucket{b}, err
}

// Read reads the tenant's state and its revision.
func (b *RetentionBucket) Read(ctx context.Context) (retention.State, uint64, error) {
	e, err := streams.KVLast(ctx, b.JS, streams.BucketRetention, retention.StateKey(b.Tenant))
	if err != nil {
		return retention.State{}, 0, err
	}
	if e == nil {
		s, err := retention.Decode(nil)
		return s, 0, err
	}
	s, err := retention.Decode(e.Value)
	return s, e.Revision, err
}

// evidenceName is the name of a session in the evidence. A name that does not fit into a subject
// is hashed. A session with a credential in its name has another name; it is found by the
// position of its records in the log.
func (b *RetentionBucket) evidenceName(ctx context.Context, session string) (string, error) {
	if !redaction.SecretName(session) {
		return subject.TokenValue(session), nil
	}
	space, token := subject.Space{Prefix: b.Target.Prefix}, subject.Escape(session)
	events, decisions := strings.TrimSuffix(space.AllOf(subject.Events, b.Tenant), ">")+"*.*."+token+".>", space.Outputs(subject.Decisions, b.Tenant, "", session)
	for _, subj := range []string{events, decisions} {
		m, err := streams.NextBySubject(ctx, b.JS, b.Target.Stream, subj, 1)
		if err != nil {
			return "", err
		}
		if m != nil {
			return b.sessionAt(ctx, m.Seq)
		}
	}
	return "", errors.New("the log has no session of this name; if it was erased, name it as countersign session lists it")
}

// sessionAt is the session of a record.
func (b *RetentionBucket) sessionAt(ctx context.Context, seq uint64) (session string, err error) {
	l, err := system.OpenEvidence(ctx, b.Target)
	if err != nil {
		return "", err
	}
	defer func() { _ = l.DB.Close() }()
	st, err := streams.StreamState(ctx, b.JS, b.Target.Stream)
	if err != nil {
		return "", err
	}
	err = l.DB.Scan(ctx, streams.IncarnationName(b.Target.Stream, st.Created), seq, seq, func(r storage.EvidenceRow) error {
		session = r.Session
		return nil
	})
	if err == nil && session == "" {
		err = fmt.Errorf("sequence %d of the log is not in the evidence yet; try again when the auditor has it", seq)
	}
	return session, err
}

// change applies a step to the state, again if another change came first.
func (b *RetentionBucket) change(ctx context.Context, step func(retention.State) (retention.State, error)) (s retention.State, err error) {
	err = b.Change(ctx, retention.StateKey(b.Tenant), func() ([]byte, uint64, error) {
		var revision uint64
		if s, revision, err = b.Read(ctx); err != nil {
			return nil, 0, err
		}
		if s, err = step(s); err != nil {
			return nil, 0, err
		}
		text, err := s.Encode()
		return text, revision, err
	})
	return s, err
}

// asking holds the flags for the author and the reason.
type asking struct {
	Reason string `help:"Why. It goes into the log for ever: no personal data." required:""`
	By     string `help:"Name of the person or part that asks for it (default: this system user)." placeholder:"NAME"`
}

func (w asking) note(id string) retention.Note {
	by := w.By
	if by == "" {
		if u, err := user.Current(); err == nil {
			by = u.Username
		} else {
			by = fmt.Sprintf("uid %d", os.Getuid())
		}
	}
	return retention.Note{ID: id, By: by, Reason: w.Reason, At: events.At(time.Now())}
}

type retentionHoldCmd struct {
	target.Flags
	asking
	Session string `help:"A session (without it and --subject: the whole tenant)." xor:"scope"`
	Subject string `help:"A data subject: an agent's or user's id, as records name it." xor:"scope" placeholder:"ID"`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (c *retentionHoldCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if c.Session, err = b.evidenceName(ctx, c.Session); err != nil {
		return err
	}
	h := retention.Hold{Scope: retention.Scope{Session: c.Session, Subject: c.Subject}, Note: c.note("hold-" + uuid.NewString()[:8])}
	s, err := b.change(ctx, func(s retention.State) (retention.State, error) { return s.PlaceHold(h) })
	if err != nil {
		return err
	}
	if !c.JSON {
		fmt.Fprintf(io.Out, "%s: legal hold on %s (tenant %s)\n", h.ID, h.Scope, ui.Clean(b.Tenant, 64))
	} else if err := ui.WriteJSON(io, struct {
		Tenant string `json:"tenant"`
		retention.Hold
	}{b.Tenant, h}); err != nil {
		return err
	}
	b.NoteUnknownTenant(ctx, io)
	for _, o := range s.BegunErasures(h) {
		fmt.Fprintf(io.Err, "note: erasure %s had begun before, and what it names is not held\n", o.ID)
	}
	return nil
}

type retentionReleaseCmd struct {
	target.Flags
	asking
	ID string `arg:"" help:"The hold, as retention show names it."`
}

func (c *retentionReleaseCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	if _, err := b.change(ctx, func(s retention.State) (retention.State, error) { return s.ReleaseHold(c.note(c.ID)) }); err != nil {
		return err
	}
	fmt.Fprintf(io.Out, "%s: released\n", c.ID)
	return nil
}

type retentionShowCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *retentionShowCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := openRetention(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	s, _, err := b.Read(ctx)
	if err != nil {
		return err
	}
	text, p, bad := b.Policy(ctx)
	if bad != nil && !errors.Is(bad, retention.ErrPolicy) {
		return bad
	}
	if c.JSON {
		out := map[string]any{"tenant": b.Tenant, "policy": string(text), "holds": s.Holds, "erasures": s.Orders}
		if p != nil {
			out["policy_id"], out["classes"], out["evidence"] = p.ID(), p.ClassRules(), p.EvidenceRules()
		}
		return ui.WriteJSON(io, out)
	}
	if text == nil {
		fmt.Fprintf(io.Out, "tenant %s has no retention policy: everything is kept\n", ui.Clean(b.Tenant, 64))
	} else {
		fmt.Fprintf(io.Out, "policy of tenant %s:\n%s\n", ui.Clean(b.Tenant, 64), ui.CleanLines(string(text)))
		if p != nil {
			printClasses(io, p)
		}
	}
	var list ui.Listing
	for _, h := range s.Holds {
		list.Row("hold", h.ID, h.Scope.String(), "by "+ui.Clean(h.By, 40), h.At.String(), ui.Clean(h.Reason, 100))
	}
	for _, o := range s.Orders {
		list.Row(kindOf(o), o.ID, scopeOf(o), "by "+ui.Clean(o.By, 40), o.At.String(), string(o.Status)+": "+ui.Clean(o.Reason, 100)+because(o.Problem))
	}
	if err := list.Print(io.Out); err != nil {
		return err
	}
	return bad
}

// kindOf and scopeOf describe an order.
func kindOf(o retention.Order) string {
	if o.Expire != "" {
		return "expiry"
	}
	return "erasure"
}

func scopeOf(o retention.Order) string {
	switch {
	case o.Scope != (retention.Scope{}):
		return o.Scope.String()
	case o.Result != nil && o.Expire != "":
		return fmt.Sprintf("%s, the texts of %s", ui.Plural(o.Result.Sessions, "session"), ui.Plural(int(o.Result.Records), "record"))
	case o.Result != nil:
		return ui.Plural(o.Result.Sessions, "session")
	}
	return ui.Plural(len(o.Sessions), "session")
}

func because(problem string) string {
	if problem == "" {
		return ""
	}
	return " (" + ui.Clean(problem, 300) + ")"
}

// Policy reads the tenant's policy from the bucket, nil if there is none.
func (b *RetentionBucket) Policy(ctx context.Context) ([]byte, *retention.Policy, error) {
	e, err := streams.KVLast(ctx, b.JS, streams.BucketRetention, retention.PolicyKey(b.Tenant))
	if err != nil || e == nil || e.Deleted {
		return nil, nil, err
	}
	p, err := retention.Parse(b.Tenant, e.Value)
	return e.Value, p, err
}

type retentionLintCmd struct {
	File string `arg:"" help:"The policy (YAML)."`
}

func (c *retentionLintCmd) Run(io ui.Stdio) error { return retentionPolicy.lint(io, c.File) }

// printClasses prints what is stored of messages in evidence, unless it is everything, and for
// how long, unless it is for ever.
func printClasses(io ui.Stdio, p *retention.Policy) {
	for _, r := range p.EvidenceRules() {
		kept := "for " + r.Period + " after their newest record"
		if r.Period == retention.Ever {
			kept = "for ever"
		}
		fmt.Fprintf(io.Out, "  %s: texts of evidence are kept %s\n", sessionsOf(r.Match), kept)
	}
	if p.StrictestClass() == retention.FullTranscript {
		return
	}
	for _, r := range p.ClassRules() {
		fmt.Fprintf(io.Out, "  %s: %s in the evidence\n", sessionsOf(r.Match), r.Class)
	}
}

func sessionsOf(match string) string {
	if match == "" {
		return "all other sessions"
	}
	return "sessions " + ui.Clean(match, 64)
}

type retentionPushCmd struct {
	target.Flags
	File string `arg:"" help:"The policy (YAML); - for standard input."`
}

func (c *retentionPushCmd) Run(ctx context.Context, io ui.Stdio) error {
	return retentionPolicy.push(ctx, io, c.Flags, c.File)
}

type retentionRemoveCmd struct{ target.Flags }

func (c *retentionRemoveCmd) Run(ctx context.Context, io ui.Stdio) error {
	return retentionPolicy.remove(ctx, io, c.Flags)
}
