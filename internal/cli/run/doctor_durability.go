package run

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/streams"
)

// durability checks how durable an acknowledged record is, and what could keep the servers from
// storing the next one.
func (d doctor) durability(ctx context.Context) []examined {
	class, detail, err := streams.Durability(ctx, d.Conn, d.Target.Stream)
	away := (*streams.AwayError)(nil)
	if err != nil && !errors.As(err, &away) {
		return one("durability", levelUnsafe, "cannot be read from the server: %v", err)
	}
	list := d.storeLimits(ctx)
	if away != nil {
		list = append(list, one("servers", levelWarn, "%v", away)...)
	}
	if problem := class.LossRisk(detail, d.acceptReplicated); problem != "" {
		return append(one("durability", levelUnsafe, "%s", problem), list...)
	}
	if class == streams.ClassReplicated {
		detail += "; accepted with --accept-replicated: durable as long as the servers do not lose power at the same time"
	}
	return append(one("durability", levelOK, "%s: %s", class, detail), list...)
}

// storeLimits names the servers that store nearly as much as their max_file_store.
func (d doctor) storeLimits(ctx context.Context) (list []examined) {
	uses, err := streams.StoreUses(ctx, d.Conn, d.Target.Stream)
	if err != nil {
		return one("servers", levelWarn, "how much they store cannot be read: %v", err)
	}
	for _, server := range slices.Sorted(maps.Keys(uses)) {
		use := uses[server]
		if left := use.Limit - use.Used; left < use.Limit/nearlyFull {
			list = append(list, one("servers", levelUnsafe, "%s stores %d MiB and refuses everything from %d MiB on (error 10023), whatever its disk has room for: "+
				"set max_file_store as in deploy/nats/nats-server.conf, and restart it", server, use.Used>>20, use.Limit>>20)...)
		}
	}
	return list
}
