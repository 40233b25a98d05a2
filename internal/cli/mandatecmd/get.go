package mandatecmd

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/admission/aump/mandate"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

type mandateGetCmd struct {
	target.Flags
	Revision uint64 `help:"An earlier revision; 'mandate history' lists them." placeholder:"REVISION"`
	JSON     bool   `name:"json" help:"Print a JSON object with its author and what was spent."`
	ID       string `arg:"" help:"The mandate's id."`
}

// mandateInfo is a mandate with everything known about it.
type mandateInfo struct {
	ID       string              `json:"id"`
	Hash     string              `json:"hash"`
	Revision uint64              `json:"revision"`
	Author   string              `json:"author"`
	PutAt    events.Time         `json:"put_at"`
	InForce  bool                `json:"in_force"` // the newest under its id, and not revoked
	State    string              `json:"state"`    // see mandateState
	Revoked  *mandate.Revocation `json:"revoked,omitempty"`
	Spent    []spentMoney        `json:"spent"` // under its id
	Mandate  json.RawMessage     `json:"mandate,omitempty"`
}

func (c *mandateGetCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	held, _, err := b.newest(ctx, c.ID)
	if err != nil && c.Revision == 0 {
		return err
	}
	newest := held
	if c.Revision != 0 {
		if held, err = b.at(ctx, c.ID, c.Revision); err != nil {
			return err
		}
	}
	if held == nil {
		return fmt.Errorf("tenant %s has no mandate %s (mandate list)", b.Tenant, c.ID)
	}
	if !c.JSON {
		return b.writeDocument(ctx, io, held)
	}
	spent, err := b.spent(ctx)
	if err != nil {
		return err
	}
	info, err := b.info(ctx, held, spent)
	if err != nil {
		return err
	}
	if newest == nil || held.Revision != newest.Revision {
		info.InForce = false
		if info.Revoked == nil {
			info.State = stateReplaced
		}
	}
	info.Mandate = json.RawMessage(held.Mandate)
	return ui.WriteJSON(io, info)
}

// writeDocument prints a mandate byte for byte. A document does not say that it is revoked: it warns of that.
func (b *MandateBucket) writeDocument(ctx context.Context, io ui.Stdio, held *heldMandate) error {
	if _, err := io.Out.Write([]byte(held.Mandate)); err != nil {
		return err
	}
	revoked, err := b.revocation(ctx, held.ID, held.Hash)
	if revoked != nil {
		fmt.Fprintf(io.Err, "warning: this mandate is %s. Another log does not know that: if you put it there, revoke it there, too\n", describeRevocation(revoked))
	}
	return err
}

func describeRevocation(r *mandate.Revocation) string {
	return stateRevoked + " by " + r.By + ": " + ui.Clean(r.Reason, 200)
}

// at reads an earlier revision.
func (b *MandateBucket) at(ctx context.Context, id string, revision uint64) (*heldMandate, error) {
	list, err := b.History(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, h := range list {
		if h.Revision == revision && h.ID != "" {
			return &h, nil
		}
	}
	return nil, fmt.Errorf("mandate %s has no revision %d that the bucket still holds (mandate history)", id, revision)
}

// History lists the revisions under an id, oldest first. A removal or an unreadable revision has
// no ID.
func (b *MandateBucket) History(ctx context.Context, id string) (list []heldMandate, err error) {
	if !mandate.ValidID(id) {
		return nil, ui.UsageError{Err: fmt.Errorf("%q is not the id of a mandate (aump_mnd_…)", ui.Clean(id, 64))}
	}
	revisions, err := streams.KVHistory(ctx, b.JS, streams.BucketMandates, mandate.Key(b.Tenant, id))
	if err != nil {
		return nil, fmt.Errorf("reading the history of mandate %s: %w", id, err)
	}
	for _, e := range revisions {
		h := heldMandate{Revision: e.Revision}
		if s, err := mandate.DecodeStored(e.Value); err == nil && !e.Deleted {
			h.StoredMandate = s
		}
		list = append(list, h)
	}
	return list, nil
}

// info returns what is known about a mandate, without its document.
func (b *MandateBucket) info(ctx context.Context, h *heldMandate, spent map[string][]spentMoney) (mandateInfo, error) {
	revoked, err := b.revocation(ctx, h.ID, h.Hash)
	if err != nil {
		return mandateInfo{}, err
	}
	doc, keys, revision, err := b.keys(ctx)
	switch {
	case err != nil && revision == 0:
		return mandateInfo{}, err
	case err != nil:
		doc.Signatures = mandate.SignaturesRequired // unreadable keys verify nothing
	}
	money := spent[h.ID]
	if money == nil {
		money = []spentMoney{}
	}
	return mandateInfo{
		ID: h.ID, Hash: h.Hash, Revision: h.Revision, Author: h.Author, PutAt: h.PutAt, InForce: revoked == nil, Revoked: revoked, Spent: money,
		State: mandateState(h.Mandate, keys, doc.Signatures, revoked != nil, time.Now()),
	}, nil
}

// States of a mandate, beside its own status.
const (
	stateInForce    = "in force"
	stateRevoked    = "revoked"
	stateExpired    = "expired"
	stateNotBegun   = "not yet valid"
	stateReplaced   = "replaced" // by a newer one under its id
	stateUnreadable = "unreadable"
	stateUnsigned   = "not signed as required"
	stateUnbounded  = "without bounds"
)

// mandateState describes in a word whether a mandate permits anything at a time. If its own
// status is not active, it returns that.
func mandateState(document string, keys aump.KeySet, signatures mandate.SignaturePolicy, revoked bool, now time.Time) string {
	m, err := mandate.Compile([]byte(document), keys)
	switch {
	case revoked:
		return stateRevoked
	case err != nil || m.Violations != nil:
		return stateUnreadable
	case !signatures.Accepts(m.Signatures):
		return stateUnsigned
	case !now.Before(m.ExpiresAt):
		return stateExpired
	case m.Status != aump.StatusActive:
		return ui.Clean(m.Status, 32)
	case now.Before(m.IssuedAt):
		return stateNotBegun
	case m.IsUnbounded():
		return stateUnbounded
	}
	return stateInForce
}

type mandateListCmd struct {
	target.Flags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *mandateListCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	ids, err := b.ids(ctx)
	if err != nil {
		return err
	}
	spent, err := b.spent(ctx)
	if err != nil {
		return err
	}
	list := []mandateInfo{}
	for _, id := range ids {
		held, _, err := b.newest(ctx, id)
		if err != nil {
			fmt.Fprintln(io.Err, "warning:", err)
			continue
		}
		if held == nil {
			continue
		}
		info, err := b.info(ctx, held, spent)
		if err != nil {
			return err
		}
		list = append(list, info)
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(io.Out, "tenant %s has no mandate: every AUMP request is denied (countersign mandate put FILE)\n", ui.Clean(b.Tenant, 64))
	}
	for _, m := range list {
		printMandate(io, m)
	}
	return nil
}

func printMandate(io ui.Stdio, m mandateInfo) {
	state := m.State
	if m.Revoked != nil {
		state = describeRevocation(m.Revoked)
	}
	fmt.Fprintf(io.Out, "%s  revision %d  by %s  %s\n    %s\n", ui.Clean(m.ID, 600), m.Revision, ui.Clean(m.Author, 64), state, ui.Clean(m.Hash, 80))
	for _, s := range m.Spent {
		fmt.Fprintf(io.Out, "    %s\n", s)
	}
}

type mandateHistoryCmd struct {
	target.Flags
	JSON bool   `name:"json" help:"Print JSON."`
	ID   string `arg:"" help:"The mandate's id."`
}

// mandateRevision is one line of a history.
type mandateRevision struct {
	Revision uint64              `json:"revision"`
	Hash     string              `json:"hash"` // "" for a removal or an unreadable revision
	Author   string              `json:"author"`
	PutAt    events.Time         `json:"put_at,omitzero"`
	Revoked  *mandate.Revocation `json:"revoked,omitempty"`
}

func (c *mandateHistoryCmd) Run(ctx context.Context, io ui.Stdio) error {
	b, err := OpenMandates(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer b.Conn.Close()
	revisions, err := b.History(ctx, c.ID)
	if err != nil {
		return err
	}
	list := []mandateRevision{}
	for _, h := range revisions {
		r := mandateRevision{Revision: h.Revision, Hash: h.Hash, Author: h.Author, PutAt: h.PutAt}
		if h.ID != "" {
			if r.Revoked, err = b.revocation(ctx, h.ID, h.Hash); err != nil {
				return err
			}
		}
		list = append(list, r)
	}
	if c.JSON {
		return ui.WriteJSON(io, list)
	}
	if len(list) == 0 {
		return fmt.Errorf("tenant %s never had a mandate %s", b.Tenant, c.ID)
	}
	for _, r := range list {
		fmt.Fprintf(io.Out, "revision %-6d %s  by %s  %s\n", r.Revision, r.PutAt, ui.Clean(r.Author, 64), describeRevision(r))
	}
	return nil
}

func describeRevision(r mandateRevision) string {
	switch {
	case r.Hash == "":
		return "(nothing that can be read)"
	case r.Revoked != nil:
		return ui.Clean(r.Hash, 80) + "  " + describeRevocation(r.Revoked)
	}
	return ui.Clean(r.Hash, 80)
}
