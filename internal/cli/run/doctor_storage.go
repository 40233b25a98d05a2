package run

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/storage/engine"
	"github.com/countersign-dev/countersign/streams"
)

// A disk is nearly full with less than a tenth of it free, as for the alert CountersignDiskNearlyFull,
// and as good as full with less than a fiftieth and less than asGoodAsFullMost.
const (
	nearlyFull       = 10
	asGoodAsFull     = 50
	asGoodAsFullMost = 1 << 30
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

// disk checks the room on the disk of an `up` of this machine. Other servers may be on other machines: there an
// alert has to do it.
func disk(ready *target.Ready) []examined {
	if ready == nil || ready.DataDir == "" || !ready.Owner.Runs() {
		return nil
	}
	free, size, err := engine.DiskSpace(ready.DataDir)
	if err != nil {
		return one("disk", levelWarn, "%v", err)
	}
	return checkDisk(ready.DataDir, free, size)
}

func checkDisk(dir string, free, size uint64) []examined {
	level, then := levelOK, ""
	switch {
	case free < min(size/asGoodAsFull, asGoodAsFullMost):
		level, then = levelUnsafe, ": make room at once; every request is denied once it is full"
	case free < size/nearlyFull:
		level, then = levelWarn, ": make room before it is full; every request is denied then"
	}
	return one("disk", level, "%d of %d MiB are free in %s%s", free>>20, size>>20, dir, then)
}
