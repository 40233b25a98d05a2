package build

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

const commitmentPrefix = "countersign/commitment/v1\x00"

// Forms of a committed value.
const (
	FormText byte = 's' // part or all of a text: its bytes
	FormJSON byte = 'j' // another JSON value: its RFC 8785 form
)

// macCommitment binds a redacted value to its place. It is "hmac-sha256:" and the hex
// HMAC-SHA-256, under the session key (mac), of
//
//	"countersign/commitment/v1" 0x00
//	seq as 8 bytes, index in redactions[] as 4, length of path as 4 (big endian)
//	path, form (one byte), value
//
// Every field but the last has a fixed or a stated length, so two different inputs never
// give the same message, and equal secrets in two places have different commitments.
// With the session key and the value an auditor can show that the value is the committed
// one. Once the key is destroyed the commitment says nothing.
func macCommitment(mac hash.Hash, seq uint64, index int, path string, form byte, value []byte) string {
	var buf [192]byte
	head := append(buf[:0], commitmentPrefix...)
	head = binary.BigEndian.AppendUint64(head, seq)
	head = binary.BigEndian.AppendUint32(head, uint32(index))
	head = binary.BigEndian.AppendUint32(head, uint32(len(path)))
	head = append(append(head, path...), form)
	mac.Reset()
	mac.Write(head)
	mac.Write(value)
	out := append(buf[:0], digest.PrefixKeyed...)
	return string(hex.AppendEncode(out, mac.Sum(buf[len(buf)-sha256.Size:len(buf)-sha256.Size])))
}

// commitHits turns hits into the redactions of record seq. policy is the id of the redaction
// policy that applied, or "" where there are no policies. What a retention class withholds
// names the policy that sets the class instead.
func commitHits(key []byte, seq uint64, hits []redact.Hit, policy string) ([]evidence.Redaction, error) {
	list := make([]evidence.Redaction, len(hits))
	mac := hmac.New(sha256.New, key)
	for i, h := range hits {
		form, value := FormText, []byte(h.Text)
		if h.IsJSON {
			var err error
			if value, err = canonical.Append(nil, h.JSON); err != nil {
				return nil, err
			}
			form = FormJSON
		}
		list[i] = evidence.Redaction{Path: h.Path, Detector: h.Detector, Commitment: macCommitment(mac, seq, i, h.Path, form, value)}
		if policy != "" || h.Rule != "" || h.Action != redact.Mask {
			list[i].Action, list[i].Policy = h.Action.String(), cmp.Or(h.Rule, policy)
		}
	}
	return list, nil
}
