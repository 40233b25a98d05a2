package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/rollout"
	"github.com/countersign-dev/countersign/streams"
)

// waitFlag says how long a command that changes what decides waits for the
// admitters.
type waitFlag struct {
	Wait time.Duration `help:"How long to wait until every admitter decides by it; 0 for not at all." default:"10s"`
}

// unconfirmedError says that a change is stored and that some admitters may still
// decide by what was before. Its exit code is exitUnconfirmed.
type unconfirmedError struct {
	what string
	late []rollout.Instance
	wait time.Duration
}

func (e unconfirmedError) Error() string {
	names := make([]string, len(e.late))
	for i, l := range e.late {
		names[i] = fmt.Sprintf("%s (%s)", clean(l.Name, 120), clean(l.ID, 40))
	}
	return fmt.Sprintf("%s is stored, but within %s these admitters did not say that they decide by it: %s; they may decide by what was before: find out whether they hang, and end them",
		e.what, e.wait, strings.Join(names, "; "))
}

// confirm waits until every admitter decides by a revision of a bucket, no
// decision by an earlier one is under way, and the log has the record of the change.
func (o operator) confirm(ctx context.Context, w waitFlag, bucket string, revision uint64) error {
	return o.confirmWhen(ctx, w, fmt.Sprintf("revision %d of the %s", revision, bucket), rollout.AtRevision(bucket, revision))
}

func (o operator) confirmWhen(ctx context.Context, w waitFlag, what string, done func(rollout.State) bool) error {
	if w.Wait <= 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	late, err := rollout.Await(waiting, o.nc, o.js, done)
	if err != nil {
		return fmt.Errorf("%s is stored, but whether the admitters decide by it is not known: %w", what, err)
	}
	if len(late) > 0 {
		return unconfirmedError{what, late, w.Wait}
	}
	return nil
}

// confirmRetired waits until the retirement of a key is in the keys bucket, where
// an admitter puts it once the log has it, and no admitter signs with the key.
func (o operator) confirmRetired(ctx context.Context, w waitFlag, kid string) error {
	if w.Wait <= 0 {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, w.Wait)
	defer cancel()
	for {
		e, err := streams.KVLast(waiting, o.js, streams.BucketKeys, keys.RetiredEntry(kid))
		if err == nil && e != nil && !e.Deleted {
			known := rollout.AtRevision(streams.BucketKeys, e.Revision)
			return o.confirmWhen(ctx, w, "the retirement of "+kid, func(s rollout.State) bool {
				return known(s) && !slices.Contains(s.SigningKeys, kid)
			})
		}
		select {
		case <-waiting.Done():
			return fmt.Errorf("the retirement of %s is written, but within %s no admitter has put it into the log: does one that runs read this directory?", kid, w.Wait)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
