package evidence

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

const commitmentPrefix = "countersign/commitment/v1\x00"

// Forms of a committed value.
const (
	FormText byte = 's' // part or all of a text: its bytes
	FormJSON byte = 'j' // another JSON value: its RFC 8785 form
)

// Commitment binds a redacted value to its place. It is "hmac-sha256:" and the
// hex HMAC-SHA-256 under the session key of
//
//	"countersign/commitment/v1" 0x00
//	seq as 8 bytes, index in redactions[] as 4, length of path as 4 (big endian)
//	path, form (one byte), value
//
// Every field but the last has a fixed or a stated length, so two different
// inputs never give the same message, and equal secrets in two places have
// different commitments. Who holds the session key and the value can show that
// it is the one; once the key is destroyed the commitment says nothing.
func Commitment(sessionKey []byte, seq uint64, index int, path string, form byte, value []byte) string {
	mac := hmac.New(sha256.New, sessionKey)
	head := append(make([]byte, 0, 128+len(path)), commitmentPrefix...)
	head = binary.BigEndian.AppendUint64(head, seq)
	head = binary.BigEndian.AppendUint32(head, uint32(index))
	head = binary.BigEndian.AppendUint32(head, uint32(len(path)))
	head = append(append(head, path...), form)
	mac.Write(head)
	mac.Write(value)
	return digest.PrefixKeyed + hex.EncodeToString(mac.Sum(nil))
}

// commit turns hits into redactions of record seq.
func commit(key []byte, seq uint64, hits []redact.Hit) ([]Redaction, error) {
	list := make([]Redaction, len(hits))
	for i, h := range hits {
		form, value := FormText, []byte(h.Text)
		if h.IsJSON {
			var err error
			if value, err = appendCanonical(nil, h.JSON); err != nil {
				return nil, err
			}
			form = FormJSON
		}
		list[i] = Redaction{Path: h.Path, Detector: h.Detector, Commitment: Commitment(key, seq, i, h.Path, form, value)}
	}
	return list, nil
}
