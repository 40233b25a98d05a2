//go:build linux

package redact

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// fragments are what hostile texts are made of: every literal of the table, every
// name, the signs between them, and beginnings of everything that is looked for.
func fragments() (out []string) {
	for _, r := range rules {
		for _, lit := range r.literals {
			out = append(out, lit, lit[:len(lit)-1], lit+"a", lit+"aA1bB2cC3dD4eE5f")
		}
	}
	for _, n := range nameRules {
		out = append(out, n.text+"=", n.text+":", "--"+n.text+" ", n.text+`="`)
	}
	out = append(out, "=", ":", "=:", ":=", "\"", "'", "\\", "\\\"", "@", "a@", "a@b", "a@b.", "a@b.co", "@@", "%41", "%", "\\u0041", "\\/", "\\n", "&#65;", "+",
		" ", "\n", ".", "-", "_", "/", "a", "A", "1", "12", "1 2", "1-2", "123-45-", "123-45-6789", "4111 1111 1111 1112", "4111111111111112", "415 555 2671", "(415) 555-",
		"123 456 7890", "12-34-56-78-90", "1.2.3.4", "DE89", "GB82WEST", "MT84MALT0110", "DE89 3704 0044 0532 0130 01", "X1234567", "12345678A", "AB12", "RSSMRA85T", "1985-", "850730", "+49",
		"YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh", "QUFBQUFBQUFBQUFBQUFB", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "aB3dE6gH9jK2mN5pQ8sT", "://", "://a:", "://a:b@", "[redacted:", "null ", "call ", "phone ", "tel: ",
		"password=null ", "key=aaaaaaaaaaaaaaaaaaaaaaaa ", "keY=keY=pw:key=", "bearer ", "basic QQ ", "rpl", "eyJa.eyJ", "-----BEGIN ", "SUAA", "${", "{{",
		"''", "\"\"", "\\ ", "$'", "'a'b", "'\\''", "'\"'\"'", "--user=", "--user=a:'", "--user 'a':", "mysql -p'", "mysql -p\\\"", "curl -u a:'")
	slices.Sort(out)
	return slices.Compact(out)
}

// threadTime is the processor time of this thread: others that use the machine
// do not count.
func threadTime() time.Duration {
	const clockThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var now syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(now.Nano())
}

// cost is the least processor time of a few runs over a text.
func cost(s string, runs int) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	best := time.Hour
	for range runs {
		start := threadTime()
		Scan(s)
		best = min(best, threadTime()-start)
	}
	return best
}

// TestSearchWorstText looks for the text that costs most: all fragments, all
// pairs, then climbs from the worst. It is a tool, not a check: it runs for the
// time that COUNTERSIGN_SEARCH says and prints what it found.
func TestSearchWorstText(t *testing.T) {
	budget, err := time.ParseDuration(os.Getenv("COUNTERSIGN_SEARCH"))
	if err != nil {
		t.Skip("set COUNTERSIGN_SEARCH to a time, such as 60s")
	}
	const size = 16 << 10
	fill := func(part string) string { return strings.Repeat(part, size/len(part)+1)[:size] }
	type found struct {
		part string
		cost time.Duration
	}
	clean := cost(fill(inputs()[0].text), 50)
	var worst []found
	try := func(part string) {
		worst = append(worst, found{part, cost(fill(part), 3)})
		if len(worst) > 400 {
			slices.SortFunc(worst, func(a, b found) int { return int(b.cost - a.cost) })
			worst = worst[:100]
		}
	}
	parts := fragments()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range parts {
		try(p)
		try(p + " ")
	}
	for end := time.Now().Add(budget); time.Now().Before(end); {
		switch part := parts[rng.IntN(len(parts))]; rng.IntN(4) {
		case 0:
			try(part + parts[rng.IntN(len(parts))])
		case 1:
			try(worst[rng.IntN(min(20, len(worst)))].part + part)
		case 2:
			w := worst[rng.IntN(min(20, len(worst)))].part
			if len(w) > 1 {
				i := rng.IntN(len(w))
				try(w[:i] + w[i+1:])
			}
		default:
			w := worst[rng.IntN(min(20, len(worst)))].part
			i := rng.IntN(len(w))
			try(w[:i] + part + w[i:])
		}
	}
	for i := range worst {
		worst[i].cost = cost(fill(worst[i].part), 30)
	}
	slices.SortFunc(worst, func(a, b found) int { return int(b.cost - a.cost) })
	t.Logf("clean: %.2f ns/B", float64(clean)/size)
	for _, w := range worst[:min(40, len(worst))] {
		q, _ := json.Marshal(w.part)
		t.Logf("%6.2f ns/B %5.1fx %s spans %d", float64(w.cost)/size, float64(w.cost)/float64(clean), q, len(Scan(fill(w.part))))
	}
}
