package verify

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/evidencereader"
	"github.com/countersign-dev/countersign/internal/service/witnessbucket"
	"github.com/countersign-dev/countersign/storage"
)

type witnessListCmd struct {
	target.Flags
	Shard string `help:"Which incarnation of the log (default: the newest)."`
	JSON  bool   `name:"json" help:"Print one JSON object a line."`
}

// witnessLine is a witness and how far it has signed.
type witnessLine struct {
	Witness string       `json:"witness"`
	Key     string       `json:"key"`
	Shard   string       `json:"shard"`
	Size    int64        `json:"size"`             // 0: none of its signatures is stored
	At      *events.Time `json:"at,omitempty"`     // by the witness's clock
	Newest  int64        `json:"newest,omitempty"` // size of the log's newest checkpoint
}

func (c *witnessListCmd) Run(ctx context.Context, io ui.Stdio) error {
	t, l, err := system.FindEvidence(ctx, c.Flags)
	if err != nil {
		return err
	}
	defer func() { _ = l.DB.Close() }()
	o, err := system.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer o.Conn.Close()
	trusted, err := witnessbucket.TrustedWitnesses(ctx, o.JS)
	if err != nil {
		return err
	}
	lines, newest, err := c.lines(ctx, l, trusted)
	if err != nil {
		return err
	}
	if c.JSON {
		for _, w := range lines {
			if err := ui.WriteJSON(io, w); err != nil {
				return err
			}
		}
		return nil
	}
	if len(lines) == 0 {
		fmt.Fprintln(io.Out, "no witness is trusted; put the key of one with: countersign witness trust FILE.pub")
		return nil
	}
	list := ui.Listing{{"WITNESS", "SIGNED UP TO", "AT", "BEHIND", "KEY"}}
	for _, one := range lines {
		size, at, behind := "nothing", "", ""
		if one.At != nil {
			size, at, behind = number(one.Size), one.At.String(), number(max(newest-one.Size, 0))
		}
		list.Row(ui.Clean(one.Witness, 60), size, at, behind, ui.Clean(one.Key, 300))
	}
	return list.Print(io.Out)
}

func number(n int64) string { return fmt.Sprint(n) }

// lines finds the newest checkpoint of each witness.
func (c *witnessListCmd) lines(ctx context.Context, l evidencereader.Reader, trusted []witnessbucket.Witness) (lines []witnessLine, newest int64, err error) {
	if len(trusted) == 0 {
		return nil, 0, nil
	}
	shard := c.Shard
	if shard == "" {
		shards, err := l.Shards(ctx)
		if err != nil {
			return nil, 0, err
		}
		shard = shards[len(shards)-1]
	}
	cp, err := l.DB.LatestCheckpoint(ctx, shard)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, 0, err
	}
	newest = int64(cp.Size)
	for _, w := range trusted {
		lines = append(lines, witnessLine{Witness: w.Name(), Key: w.Text, Shard: shard, Newest: newest})
	}
	unseen := len(lines)
	for c, err := range l.DB.CosignedCheckpoints(ctx, shard, 0) { // the largest comes first
		if err != nil {
			return nil, 0, err
		}
		for i, w := range trusted {
			if lines[i].At != nil {
				continue
			}
			if by := tree.Cosignatures(c.Note, []note.Verifier{w}); len(by) > 0 {
				lines[i].Size, lines[i].At = by[0].Size, &by[0].At
				unseen--
			}
		}
		if unseen == 0 {
			break
		}
	}
	return lines, newest, nil
}
