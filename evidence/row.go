package evidence

import (
	"time"

	"github.com/countersign-dev/countersign/events"
)

// Row is one row of the table evidence.
type Row struct {
	Shard, Tenant, Session, Kind, Subject string
	Seq                                   uint64
	BrokerTime                            time.Time
	BodyDigest                            string
	Record                                string // the canonical text; empty if it expired
	RecordHash                            [32]byte
	Expiry                                uint64 // of an expired row: the sequence of the expiry record, as a hint; verification does not rely on it
}

// Expired reports whether the row has no text; then only its columns can be read.
func (r Row) Expired() bool { return r.Record == "" }

// ExpiredNote summarises an expiry record for a reader.
type ExpiredNote struct {
	Policy string
	At     events.Time
}

// ExpiryIn decodes the expiry record in a row. It does not verify it.
func ExpiryIn(r Row) (e events.Expiry, ok bool) {
	rec, err := ParseRecord([]byte(r.Record))
	if err == nil {
		e, err = events.DecodeRecord[events.Expiry](rec.Body)
	}
	return e, err == nil
}
