//go:build linux

package build_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
)

// hostile are the texts, found by TestSearchWorstText of package redact, that cost
// redaction most for their length, and some that once did.
var hostile = []string{
	"keY=keY=pw:key=", "18-", "98 ", "98-SK", "9128 ", "415 555 2671 ", "a@b.1co ", "password=null ", "key=aaaaaaaaaaaaaaaaaaaaaaaa ", "\\/", "%41A2", "&#65;",
	"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh ", "DE89 370 004 05312345678A2 0130 01 ATBB ", "MD24 MD24 ", "\\/ key=A12s-1235678A\\",
	"%41 pltokecontinuationtoken: basic acontinuationtoken:", "%41 plytoken basic acontinuationtoken://aA1bB2cC3dD4eE5f:shpss_a", "sk-sk-sk-sk-glpat-glpat-xoxb-", "eyJ",
	"YWFhYWFhYWFhYWFhYWFhYWFhYWhYWFhYW=:hY:FPRVATE+EYah ://:", "YWFhYWFhYWFhYWFhYWFhYWFhYWhYWFhW=:FSG.hYFh ://:", "=:=:d=y:",
	"secrets:[{", "token:{a:", "/a~1b~0", "%41a~1", "secret:\r\n\r\n", "ｐ:",
	"AKIA sk- ghp_ xoxb- eyJ password token secret api_key bearer of basic x -----BEGIN x ://a key=1 ",
}

func threadTime() time.Duration {
	const clockThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}

// recordCost is the least processor time that building a record of a body took.
func recordCost(t testing.TB, body []byte, runs int) time.Duration {
	f := evidencetest.New(t)
	m := events.LogMessage{Seq: 7, Time: evidencetest.Start, Subject: evidencetest.EventSubject, Body: body, Header: map[string][]string{"ce-id": {"1"}, "ce-type": {"x"}}}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Hour
	for range runs {
		start := threadTime()
		if _, err := f.Builder.Build(m, evidence.Head{Index: 3}, f.Keys); err != nil {
			t.Fatal(err)
		}
		best = min(best, threadTime()-start)
	}
	return best
}

// noted is an event with a body of about n bytes. Most of it is part, repeated, as a JSON
// string.
func noted(part string, n int) []byte {
	quoted, _ := json.Marshal(part)
	inner := strings.Trim(string(quoted), `"`)
	return []byte(strings.Replace(evidencetest.PlainEvent, `"metadata"`, `"note":"`+strings.Repeat(inner, max(1, (n-len(evidencetest.PlainEvent))/len(inner)))+`","metadata"`, 1))
}

// BenchmarkHostile says how much slower the most expensive texts known are than
// clean ones of the same size, in whole records.
func BenchmarkHostile(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"1800B", 1800}, {"16K", 16 << 10}, {"64K", 64 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			worst, which := 0.0, ""
			for b.Loop() {
				clean := recordCost(b, noted(evidencetest.CleanText, size.bytes), 30)
				worst = 0
				for _, part := range hostile {
					if x := float64(recordCost(b, noted(part, size.bytes), 20)) / float64(clean); x > worst {
						worst, which = x, part
					}
				}
				b.ReportMetric(float64(clean.Nanoseconds())/float64(size.bytes), "clean-ns/B")
			}
			b.ReportMetric(worst, "x-clean")
			b.Logf("worst: %q", which)
		})
	}
}
