package run

import (
	"github.com/countersign-dev/countersign/internal/cli/target"
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
