package evidencereader

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// DecodeRow reads the record in a row: as it stands, and as the type of its kind.
func DecodeRow[T any](r storage.EvidenceRow) (body json.RawMessage, record T, err error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return nil, record, err
	}
	return rec.Body, record, json.Unmarshal(rec.Body, &record)
}
