package call

import "github.com/countersign-dev/countersign/events"

// FirstTraceparent returns the first valid W3C traceparent among the request's header and the
// candidates, "" if there is none.
func FirstTraceparent(r Request, candidates ...string) string {
	for _, t := range append(r.Header[events.HeaderTrace], candidates...) {
		if events.IsTraceparent(t) {
			return t
		}
	}
	return ""
}
