package events

import (
	"fmt"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// LogMessage is one message of a shard's log, as the broker stored it. Seq and Time are the
// broker's; nothing else in it is trusted. The receiver must not change Header or Body.
type LogMessage struct {
	Seq     uint64
	Subject string
	Time    time.Time
	Header  map[string][]string
	Body    []byte
}

// HeaderValue returns the first value of a header by its exact name.
func (m LogMessage) HeaderValue(name string) string {
	if v := m.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// DecodeRecord reads a record written by Encode, strictly: unknown fields are errors, and so is
// everything that strictjson refuses.
func DecodeRecord[T any](b []byte) (T, error) {
	var r T
	if _, err := strictjson.ParseObject(b, strictjson.DefaultLimits); err != nil {
		return r, err
	}
	if err := strictjson.Unmarshal(b, &r, strictjson.RejectUnknown); err != nil {
		return r, fmt.Errorf("decoding a %T: %w", r, err)
	}
	return r, nil
}
