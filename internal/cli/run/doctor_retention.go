package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/evidence/retention"
	"github.com/countersign-dev/countersign/internal/cli/admin"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// missing describes the messages that the log lost without an erasure record, and counts those
// with one.
func (d doctor) missing(ctx context.Context, state jetstream.StreamState) (wrong, erased string) {
	if state.FirstSeq <= 1 && state.NumDeleted == 0 {
		return "", ""
	}
	known, err := system.TrustedKeys("", d.Target)
	if err != nil {
		return "messages are missing from it, and without a public key it cannot be checked whether they were erased (give --ready-file)", ""
	}
	n, lost, err := system.Erasures(d.JS, d.Target.Stream, d.Target.Prefix, known).Missing(ctx, 3)
	switch {
	case err != nil:
		return fmt.Sprintf("messages are missing from it, and why cannot be read: %v", err), ""
	case len(lost) > 0:
		return fmt.Sprintf("messages are missing from it that no erasure record names, the first is %d", lost[0]), ""
	}
	return "", fmt.Sprintf("; %d messages erased, each by a signed record", n)
}

// retention checks that erasures can be carried out, and are.
func (d doctor) retention(ctx context.Context) []examined {
	const check = "retention"
	b := &admin.RetentionBucket{Bucket: system.Bucket{Operator: d.Operator}}
	s, _, err := b.Read(ctx)
	if err != nil {
		return one(check, levelUnsafe, "the holds of tenant %s cannot be read, so nothing is erased: %v", d.Target.Tenant, err)
	}
	open := 0
	for _, o := range s.Orders {
		if o.Status.Open() {
			open++
		}
	}
	if _, _, err := b.Policy(ctx); errors.Is(err, retention.ErrPolicy) {
		return one(check, levelUnsafe, "the retention policy of tenant %s cannot be used: %v", d.Target.Tenant, err)
	}
	if open > 0 {
		return one(check, levelWarn, "%s of tenant %s not done yet: %s", ui.Plural(open, "erasure"), d.Target.Tenant, describeProgress(d.erasureProgress(ctx)))
	}
	return one(check, levelOK, "tenant %s: %s, nothing left to erase", d.Target.Tenant, ui.Plural(len(s.Holds), "legal hold"))
}

// erasureProgress counts the messages that the tenant's begun erasures name, and those that are gone: none if that
// cannot be read.
func (d doctor) erasureProgress(ctx context.Context) (gone, named int) {
	known, err := system.TrustedKeys("", d.Target)
	if err != nil {
		return 0, 0
	}
	gone, named, err = system.Erasures(d.JS, d.Target.Stream, d.Target.Prefix, known).Progress(ctx, d.Target.Tenant)
	if err != nil {
		return 0, 0
	}
	return gone, named
}

func describeProgress(gone, named int) string {
	if gone == 0 {
		return "does the auditor have a custodian's credentials, and does the correlator run?"
	}
	return fmt.Sprintf("%d of %d messages are gone so far", gone, named)
}
