package metrics

import (
	"bytes"
	"os"
	"runtime"
	rt "runtime/metrics"
	"strconv"
	"time"
)

// ticksPerSecond is USER_HZ, which is 100 on Linux whatever the machine.
const ticksPerSecond = 100

// process shows what the operating system and the Go runtime know of this
// process. What cannot be read is left out.
func (r *Registry) process() {
	began := float64(time.Now().UnixNano()) / float64(time.Second)
	r.gauge(descStart, "", func() (float64, bool) { return began, true })
	r.gauge(descCPU, "", func() (float64, bool) {
		user, okUser := procStat(13)
		system, okSystem := procStat(14)
		return float64(user+system) / ticksPerSecond, okUser && okSystem
	})
	r.gauge(descMemory, "", func() (float64, bool) {
		pages, ok := procStat(23)
		return float64(pages) * float64(os.Getpagesize()), ok
	})
	r.gauge(descFiles, "", func() (float64, bool) {
		list, err := os.ReadDir("/proc/self/fd")
		return float64(len(list)), err == nil
	})
	r.gauge(descRoutine, "", func() (float64, bool) { return float64(runtime.NumGoroutine()), true })
	r.gauge(descHeap, "", func() (float64, bool) {
		s := []rt.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		rt.Read(s)
		if s[0].Value.Kind() != rt.KindUint64 {
			return 0, false
		}
		return float64(s[0].Value.Uint64()), true
	})
}

// procStat gives a field of /proc/self/stat, counted from 0.
func procStat(field int) (uint64, bool) {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, false
	}
	// The command's name may hold blanks and parentheses; it is field 1.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if field-2 >= len(f) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(f[field-2]), 10, 64)
	return n, err == nil
}
