package events_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestTraceparents(t *testing.T) {
	for in, want := range map[string]bool{
		traceparent: true, "00" + traceparent[2:] + "-more": false, "cc" + traceparent[2:] + "-more": true, "cc" + traceparent[2:] + "more": false, "ff" + traceparent[2:]: false,
		strings.ToUpper(traceparent): false, "00-00000000000000000000000000000000-b7ad6b7169203331-01": false, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01": false,
		"": false, traceparent[:54]: false, "0g" + traceparent[2:]: false, strings.Replace(traceparent, "-", "_", 1): false,
	} {
		if _, got := events.ParseTraceparent(in); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

// FuzzTraceparent: what is accepted is written back the same.
func FuzzTraceparent(f *testing.F) {
	f.Add(traceparent)
	f.Add("cc" + traceparent[2:] + "-x")
	f.Fuzz(func(t *testing.T, in string) {
		x, fits := events.ParseTraceparent(in)
		if fits && fmt.Sprintf("%s-%x-%x-%02x", in[:2], x.Trace, x.Span, x.Flags) != in[:55] {
			t.Errorf("%q was read as %x %x %02x", in, x.Trace, x.Span, x.Flags)
		}
	})
}
