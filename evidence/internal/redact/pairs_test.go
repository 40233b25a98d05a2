package redact

import (
	"strings"
	"testing"
)

func TestOrdinaryPairs(t *testing.T) {
	counts := ordinaryPairs()
	for i := range counts {
		pair := string([]byte{byte(i >> 8), byte(i)})
		if want := strings.Count(ordinaryText, pair); int(counts[i]) != want {
			t.Errorf("the pair %q is counted %d times; it is there %d times", pair, counts[i], want)
		}
	}
}
