package verify

import (
	"encoding/hex"
	"strconv"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/view"
)

// chainPlace is a record's place in its session's chain, as the record states it.
type chainPlace struct {
	indexed, chained bool // session_index, session_prev are not null
	index            uint64
	prev             [32]byte
	malformedPrev    string // session_prev if it is not a hash
}

// chainPosition reads the place that a record states.
func chainPosition(v *view.Record) (p chainPlace) {
	p.indexed, p.index, p.chained = v.Indexed, v.Index, v.Prev != nil
	if !p.chained {
		return p
	}
	var fine bool
	if p.prev, fine = hexHash(v.Prev); !fine {
		p.malformedPrev = strconv.Quote(string(v.Prev))
	}
	return p
}

// hexValue maps a lower case hex digit to its value, and any other byte to more than 15.
var hexValue = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = byte(i)
	}
	return table
}()

// hexHash parses 64 lower case hex digits.
func hexHash(b []byte) (h [32]byte, ok bool) {
	if len(b) != 2*len(h) {
		return h, false
	}
	var wrong byte
	for i := range h {
		high, low := hexValue[b[2*i]], hexValue[b[2*i+1]]
		wrong |= high | low
		h[i] = high<<4 | low&15
	}
	return h, wrong < 16
}

func lowerDigits(b []byte) bool {
	for _, c := range b {
		if hexValue[c] > 15 {
			return false
		}
	}
	return true
}

// followsHead reports whether the record names the hash of h, or none if h is zero.
func (p chainPlace) followsHead(h evidence.Head) bool {
	if h.Index == 0 {
		return !p.chained
	}
	return p.chained && p.malformedPrev == "" && p.prev == h.Hash
}

func (p chainPlace) indexText() string {
	if !p.indexed {
		return "null"
	}
	return strconv.FormatUint(p.index, 10)
}

func (p chainPlace) prevText() string {
	switch {
	case !p.chained:
		return "null"
	case p.malformedPrev != "":
		return p.malformedPrev
	}
	return hex.EncodeToString(p.prev[:])
}

// prevText is the session_prev that a record after h must have.
func prevText(h evidence.Head) string {
	if h.Index == 0 {
		return "null"
	}
	return hex.EncodeToString(h.Hash[:])
}
