package streams

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Msg is a message to be stored. Its maps and slices must not change until the call that got it
// returns.
type Msg struct {
	Subject string
	Header  map[string][]string // no "Nats-…" keys: those control the server
	Body    []byte

	// Sign makes the Committer call CommitterOptions.Sign, which adds headers of at most
	// SignatureRoom bytes, when the group of the message is known. The Committer changes Header
	// then.
	Sign bool
}

// SignatureRoom is how many bytes the headers that Sign adds to a message may take.
const SignatureRoom = 1024

// Headers that this package itself sets.
const (
	headerBatchID     = "Nats-Batch-Id"
	headerBatchSeq    = "Nats-Batch-Sequence"
	headerBatchCommit = "Nats-Batch-Commit"
	headerExpectLast  = "Nats-Expected-Last-Subject-Sequence"
	headerExpectOn    = "Nats-Expected-Last-Subject-Sequence-Subject"

	reservedPrefix = "nats-"

	// headerRoom is the greatest size of the batch and fence headers of a message.
	headerRoom = 256

	// maxHeader is how many bytes of headers JetStream stores (error 10097 beyond it).
	maxHeader = 65535
)

// size is about the number of bytes of a message on the wire.
func (m Msg) size() int { return len(m.Subject) + len(m.Body) + m.headerSize() }

// headerSize is about the number of bytes of a message's headers.
func (m Msg) headerSize() int {
	n := headerRoom
	if m.Sign {
		n += SignatureRoom
	}
	for k, vs := range m.Header {
		for _, v := range vs {
			n += len(k) + len(v) + 4
		}
	}
	return n
}

// check refuses a message that the server would refuse, or obey in an unintended way, and
// returns the size of any other. After an error nothing was sent.
func (m Msg) check(maxPayload int64) (size int, err error) {
	if m.Subject == "" || strings.ContainsAny(m.Subject, " \t\r\n*>") {
		return 0, fmt.Errorf("%w: %.80q is not a subject to publish on", ErrRefused, m.Subject)
	}
	for k := range m.Header {
		if !isHeaderName(k) {
			return 0, fmt.Errorf("%w: %w: %.80q on %s", ErrRefused, ErrHeaderName, k, m.Subject)
		}
		if len(k) >= len(reservedPrefix) && strings.EqualFold(k[:len(reservedPrefix)], reservedPrefix) {
			return 0, fmt.Errorf("%w: %w: %q on %s", ErrRefused, ErrReservedHeader, k, m.Subject)
		}
	}
	if size = m.size(); maxPayload > 0 && int64(size) > maxPayload {
		return 0, fmt.Errorf("%w: %w: a message of about %d bytes on %s, the server takes %d (max_payload)",
			ErrRefused, ErrTooLarge, size, m.Subject, maxPayload)
	}
	if header := m.headerSize(); header > maxHeader {
		return 0, fmt.Errorf("%w: %w: about %d bytes of headers on %s, JetStream stores %d", ErrRefused, ErrTooLarge, header, m.Subject, maxHeader)
	}
	return size, nil
}

// isHeaderName reports whether the client writes a header of this name. It reads others, too, and a message with one
// would fail in the middle of a group (TestHeaderNames).
func isHeaderName(k string) bool {
	return k != "" && !strings.ContainsFunc(k, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"()/,:;<=>?@[\\]{}", r)
	})
}

func checkAll(msgs []Msg, maxPayload int64) (bytes int, err error) {
	for i, m := range msgs {
		size, err := m.check(maxPayload)
		if err != nil {
			return 0, fmt.Errorf("message %d of %d: %w", i+1, len(msgs), err)
		}
		bytes += size
	}
	return bytes, nil
}

// ack is a JetStream publish acknowledgement.
type ack struct {
	Stream    string    `json:"stream"`
	Seq       uint64    `json:"seq"`
	Duplicate bool      `json:"duplicate"`
	Batch     string    `json:"batch"`
	Count     uint64    `json:"count"`
	Error     *apiError `json:"error"`
}

const (
	codeWrongLastSeq         = 10071
	codeWrongLastSeqConstant = 10164
	codeBatchBusy            = 10210
)

// readAck parses an acknowledgement. The error is ErrRefused if the server says that it stored
// nothing, and ErrAmbiguous if the answer is not as expected. An empty stream means any.
func readAck(msg *nats.Msg, stream string) (ack, error) {
	if len(msg.Data) == 0 && msg.Header.Get("Status") == "503" {
		return ack{}, fmt.Errorf("%w: nothing answers on the subject: no service takes events in, or the shard was not provisioned", ErrRefused)
	}
	var a ack
	if err := json.Unmarshal(msg.Data, &a); err != nil {
		return ack{}, fmt.Errorf("%w: the acknowledgement is not JSON", ErrAmbiguous)
	}
	switch {
	case a.Error != nil:
		return a, refusalError(a.Error)
	case a.Duplicate:
		return a, fmt.Errorf("%w: the server took the message for a duplicate of sequence %d", ErrAmbiguous, a.Seq)
	case a.Seq == 0 || a.Stream == "" || stream != "" && a.Stream != stream:
		return a, fmt.Errorf("%w: acknowledged by stream %q as sequence %d, want stream %q", ErrAmbiguous, a.Stream, a.Seq, stream)
	}
	return a, nil
}

// Error codes of the ingest service (internal/service/ingest), outside JetStream's range.
const (
	CodeHeader = 10990 // a header steers the server, or its name cannot be sent
	CodeQuota  = 10991 // the publisher, or its tenant, exceeds a quota
	CodeSender = 10992 // the subject is not one that its sender may publish on
)

func refusalError(e *apiError) error {
	switch e.ErrCode {
	case codeWrongLastSeq, codeWrongLastSeqConstant:
		return fmt.Errorf("%w: %w: %w", ErrRefused, ErrFenced, e)
	case CodeQuota:
		return fmt.Errorf("%w: %w: %w", ErrRefused, ErrQuota, e)
	case CodeSender:
		return fmt.Errorf("%w: %w: %w", ErrRefused, ErrSender, e)
	case codeBatchBusy:
		return fmt.Errorf("%w: %w: %w", ErrRefused, ErrBatchBusy, e)
	}
	return fmt.Errorf("%w: %w", ErrRefused, e)
}
