package retention

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events"
)

// maxSeqs is the greatest number of sequences that one erasure can name.
const maxSeqs = 10_000

// ParseSeqs parses sequences of the log in increasing order: "12", "12,20-25".
func ParseSeqs(text string) (spans []events.Span, err error) {
	last, count := uint64(0), uint64(0)
	for part := range strings.SplitSeq(text, ",") {
		first, end, ranged := strings.Cut(part, "-")
		if !ranged {
			end = first
		}
		a, err1 := strconv.ParseUint(first, 10, 53)
		b, err2 := strconv.ParseUint(end, 10, 53)
		if err1 != nil || err2 != nil || a <= last || b < a {
			return nil, fmt.Errorf("%.40q names no sequences in order; write 12 or 12,20-25", text)
		}
		if count += b - a + 1; count > maxSeqs {
			return nil, fmt.Errorf("more than %d sequences at once", maxSeqs)
		}
		last, spans = b, append(spans, events.Span{a, b})
	}
	return spans, nil
}
