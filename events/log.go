package events

import "time"

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

// Size is the number of bytes in subject, headers and body.
func (m LogMessage) Size() int {
	n := len(m.Subject) + len(m.Body)
	for name, values := range m.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return n
}

// SessionID names one session: a tenant has many, and two tenants may use one name. A message
// or a record with an empty Session belongs to no session.
type SessionID struct{ Tenant, Session string }
