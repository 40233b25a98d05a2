package evidencereader

import (
	"encoding/json"

	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/storage"
)

// DecodeRow returns the body of a row's record, raw and decoded as T.
func DecodeRow[T any](r storage.EvidenceRow) (body json.RawMessage, record T, err error) {
	rec, err := evidence.ParseRecord([]byte(r.Record))
	if err != nil {
		return nil, record, err
	}
	return rec.Body, record, json.Unmarshal(rec.Body, &record)
}
