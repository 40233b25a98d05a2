package system

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/rollout"
	"github.com/countersign-dev/countersign/streams"
)

// WaitFlag sets how long a command that changes policies or keys waits for the admitters.
type WaitFlag struct {
	Wait time.Duration `help:"How long to wait until every admitter decides by it; 0 for not at all." default:"10s"`
}

// unconfirmedError reports that a change is stored but some admitters may still use the previous
// state. Its exit code is ExitUnconfirmed.
type unconfirmedError struct {
	what string
	late []rollout.Instance
	wait time.Duration
}

// CommandExitCode differs from the code for a change that was not made.
func (e unconfirmedError) CommandExitCode() int { return ui.ExitUnconfirmed }

func (e unconfirmedError) Error() string {
	names := make([]string, len(e.late))
	for i, l := range e.late {
		names[i] = fmt.Sprintf("%s (%s)", ui.Clean(l.Name, 120), ui.Clean(l.ID, 40))
	}
	return fmt.Sprintf("%s is stored, but within %s these admitters did not say that they decide by it: %s; they may decide by what was before: find out whether they hang, and end them",
		e.what, e.wait, strings.Join(names, "; "))
}

// Confirm waits until every admitter uses a revision of a bucket, no decision under an earlier
// one is under way, and the log has the record of the change.
func (o Operator) Confirm(ctx context.Context, w WaitFlag, bucket string, revision uint64) error {
	return o.confirmWhen(ctx, w, fmt.Sprintf("revision %d of the %s", revision, bucket), rollout.AtRevision(bucket, revision))
}

func (o Operator) confirmWhen(ctx context.Context, w WaitFlag, what string, done func(rollout.State) bool) error {
	if w.Wait <= 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	late, err := rollout.Await(waiting, o.Conn, o.JS, done)
	if err != nil {
		return fmt.Errorf("%s is stored, but whether the admitters decide by it is not known: %w", what, err)
	}
	if len(late) > 0 {
		return unconfirmedError{what, late, w.Wait}
	}
	return nil
}

// ConfirmRetired waits until the keys bucket has the retirement of a key, which an admitter
// writes once the log has it, and no admitter signs with the key.
func (o Operator) ConfirmRetired(ctx context.Context, w WaitFlag, kid string) error {
	if w.Wait <= 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	for {
		e, err := streams.KVLast(waiting, o.JS, streams.BucketKeys, keys.RetiredEntry(kid))
		if err == nil && e != nil && !e.Deleted {
			known := rollout.AtRevision(streams.BucketKeys, e.Revision)
			return o.confirmWhen(ctx, w, "the retirement of "+kid, func(s rollout.State) bool {
				return known(s) && !slices.Contains(s.SigningKeys, kid)
			})
		}
		if retry.Sleep(waiting, 50*time.Millisecond) != nil {
			return fmt.Errorf("the retirement of %s is written, but within %s no admitter has put it into the log: does one that runs read this directory?", kid, w.Wait)
		}
	}
}
