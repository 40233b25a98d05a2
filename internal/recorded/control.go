package recorded

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/streams"
)

// EachControl yields the control records of a kind, in order. The kinds that are read so are written by
// streams.StoreLinked. An error is the last thing that it yields.
func (l Log) EachControl(ctx context.Context, kind string) iter.Seq2[*events.LogMessage, error] {
	return streams.EachLinked(ctx, l.JS, l.Stream, l.Space.Control(l.Stream, kind), 1)
}

// Approvals returns the records of an approval workflow, in order. Each status is a subject of its own: of a subject
// without wildcards the server knows where the first and the last message are.
func (l Log) Approvals(ctx context.Context, tenant, workflow string) (list []events.LogMessage, err error) {
	for _, status := range events.ApprovalStatuses {
		for m, err := range streams.EachBySubject(ctx, l.JS, l.Stream, l.Space.Approval(tenant, status, workflow), 1) {
			if err != nil {
				return nil, err
			}
			list = append(list, *m)
		}
	}
	slices.SortFunc(list, func(a, b events.LogMessage) int { return cmp.Compare(a.Seq, b.Seq) })
	return list, nil
}
