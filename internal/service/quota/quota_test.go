package quota_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/internal/service/quota"
)

// TestWideDocumentsCostMore: an event of many small values takes more of a quota of
// bytes than one of the same size that holds one text.
func TestWideDocumentsCostMore(t *testing.T) {
	const size = 800_000
	wide := []byte("[" + strings.Repeat("1,", size/2-1) + "1]")
	text := []byte(`["` + strings.Repeat("x", size-4) + `"]`)
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	taken := func(body []byte) (n int) {
		m := quota.NewMeter(quota.Quotas{Publisher: quota.Rate{Bytes: 32 << 20}, Burst: 10 * time.Second})
		for {
			if _, ok := m.Take(now, "acme", "rt1", quota.Cost(nil, body)); !ok {
				return n
			}
			n++
		}
	}
	if w, x := taken(wide), taken(text); w > 7 || x < 400 {
		t.Errorf("%d wide events at once, %d of the same size with one text", w, x)
	}
}

// TestHeadersCost: what is in the headers of a message counts like its body.
func TestHeadersCost(t *testing.T) {
	header := map[string][]string{"ce-x": {"0123456789", "01234"}, "ce-y": {""}}
	if n := quota.HeaderBytes(header); n != len("ce-x: 0123456789\r\nce-x: 01234\r\nce-y: \r\n") {
		t.Errorf("%d bytes", n)
	}
	if with, without := quota.Cost(header, []byte("{}")), quota.Cost(nil, []byte("{}")); without != 2 || with != without+quota.HeaderBytes(header) {
		t.Errorf("%d with headers, %d without", with, without)
	}
}
