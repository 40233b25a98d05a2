package call

import "github.com/countersign-dev/countersign/events"

// FirstTraceparent gives the first valid W3C traceparent among the request's header and
// the candidates, "" if there is none.
func FirstTraceparent(r Request, candidates ...string) string {
	for _, t := range append(r.Header[events.HeaderTrace], candidates...) {
		if isTraceparent(t) {
			return t
		}
	}
	return ""
}

// isTraceparent reports whether t has the form of version 00:
// 00-<32 hex>-<16 hex>-<2 hex>, all in lower case, ids not zero.
func isTraceparent(t string) bool {
	const layout = "00-hhhhhhhhhhhhhhhhhhhhhhhhhhhhhhhh-hhhhhhhhhhhhhhhh-hh"
	if len(t) != len(layout) {
		return false
	}
	for i := range len(layout) {
		switch c := t[i]; layout[i] {
		case 'h':
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		default:
			if c != layout[i] {
				return false
			}
		}
	}
	return t[3:35] != "00000000000000000000000000000000" && t[36:52] != "0000000000000000"
}
