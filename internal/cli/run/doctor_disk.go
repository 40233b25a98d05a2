package run

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage/engine"
)

// A disk is nearly full with less than a tenth of it free, as for the alert CountersignDiskNearlyFull,
// and as good as full with less than a fiftieth and less than asGoodAsFullMost.
const (
	nearlyFull       = 10
	asGoodAsFull     = 50
	asGoodAsFullMost = 1 << 30
)

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

// services reports the problems that an `up` of this machine has: it knows them when NATS is away, too.
func services(ctx context.Context, ready *target.Ready) (list []examined) {
	const check = "services"
	if ready == nil || ready.HTTPURL == "" || !ready.Owner.Runs() {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ready.HTTPURL+"/healthz", nil)
	if err != nil {
		return one(check, levelUnsafe, "the health endpoint of up: %v", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return one(check, levelUnsafe, "up runs, and its health endpoint does not answer: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var report daemon.Report
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxReport)).Decode(&report); err != nil {
		return one(check, levelUnsafe, "up runs, and its health report cannot be read: %v", err)
	}
	for _, component := range slices.Sorted(maps.Keys(report.Problems)) {
		level := levelWarn
		if strings.HasSuffix(component, "/process") {
			level = levelUnsafe
		}
		list = append(list, examined{check, level, component + ": " + report.Problems[component]})
	}
	return list
}

// maxReport bounds a health report, in bytes; real ones are far smaller.
const maxReport = 1 << 20

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
