// Package streams holds everything that Countersign knows about NATS. Operator commands use
// ServerConfig to render accounts, roles and permissions, and Provision to make the streams and
// KV buckets. Services use Connect, Committer for group commit, AppendFenced for writes that must
// fail after another instance has taken over, StoreLinked and EachLinked for records that are rare on
// the log, ReadLog to read a shard's log in order,
// RequestIdentity to authenticate requests, and Durability for the class of a running server.
//
// The package knows no policy and does not interpret messages; streams/embedded runs a server.
// Begin with roles.go for permissions, Committer for writing and ReadLog for reading.
package streams

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinel errors. Callers decide with errors.Is.
var (
	// ErrConfig: a ServerConfig cannot be rendered; the message names the field.
	ErrConfig = errors.New("streams: server configuration")

	// ErrAmbiguous: it is unknown whether the messages are stored (no acknowledgement, a
	// connection lost while waiting, an acknowledgement that does not fit). The caller must
	// treat them as not stored in what it promises, and as possibly stored in what it writes
	// next.
	ErrAmbiguous = errors.New("streams: stored or not is unknown")

	// ErrRefused: certainly nothing of the call is stored.
	ErrRefused = errors.New("streams: not stored")

	// ErrFenced: another writer has moved the fence; the caller must stop writing.
	ErrFenced = errors.New("streams: fenced off by another writer")

	// ErrBatchBusy: the server has no capacity for another atomic batch (other clients may
	// occupy all of it). Nothing is stored; the caller may try again.
	ErrBatchBusy = errors.New("streams: no atomic batch to be had")

	// ErrTooLarge: more messages or bytes than one call may carry.
	ErrTooLarge = errors.New("streams: too large")

	// ErrReservedHeader: a message has a header that controls the server.
	ErrReservedHeader = errors.New("streams: header reserved for the server")

	// ErrHeaderName: a header's name has characters that cannot be sent.
	ErrHeaderName = errors.New("streams: not the name of a header")

	// ErrBusy: the greatest number of messages is waiting; nothing of the call is stored.
	ErrBusy = errors.New("streams: too many messages wait")

	// ErrQuota: the publisher or its tenant sends more than its quota allows; nothing of the
	// message is stored.
	ErrQuota = errors.New("streams: over the quota")

	// ErrSender: the sender may not publish under the message's subject; it is not stored.
	ErrSender = errors.New("streams: not a subject of this sender")

	// ErrClosed: the Committer is closed.
	ErrClosed = errors.New("streams: closed")

	// ErrIdentity: a request has no identity that the server has stamped.
	ErrIdentity = errors.New("streams: no authenticated identity on the request")

	// ErrDirectGet: a bucket allows any of its replicas to answer reads.
	ErrDirectGet = errors.New("streams: the bucket allows direct get")

	// ErrRewound: the stream holds fewer messages than were already read from it: acknowledged
	// messages are lost.
	ErrRewound = errors.New("streams: stream was rewound")

	// ErrRecreated: the stream is another one of the same name than was read so far.
	ErrRecreated = errors.New("streams: stream was recreated")
)

// GapError says that sequences are missing from the log: Want is the expected sequence, Got the
// one that came.
type GapError struct {
	Stream    string
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s has a gap: sequence %d is missing, next is %d; the log was tampered with or lost data",
		e.Stream, e.Want, e.Got)
}

// Difference is one setting of an existing stream or bucket that differs from the wanted one.
type Difference struct{ Object, Field, Have, Want string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s is %s, want %s", d.Object, d.Field, d.Have, d.Want)
}

// ConflictError lists how existing streams and buckets differ from the wanted ones. None of them
// was changed.
type ConflictError struct{ Differences []Difference }

func (e *ConflictError) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return "existing streams differ from what Countersign needs and were left alone (change them as docs/operating.md says, or use another server): " +
		strings.Join(lines, "; ")
}

// PublishError lists, by index, the messages of a PublishEvents call that are not known to be
// stored, and why. All others are stored.
type PublishError struct{ Failed map[int]error }

func (e *PublishError) Error() string {
	first, n := -1, len(e.Failed)
	for i := range e.Failed {
		if first < 0 || i < first {
			first = i
		}
	}
	return fmt.Sprintf("%d message(s) not stored for certain, the first is number %d: %v", n, first+1, e.Failed[first])
}

// Unwrap returns every cause.
func (e *PublishError) Unwrap() []error {
	out := make([]error, 0, len(e.Failed))
	for _, err := range e.Failed {
		out = append(out, err)
	}
	return out
}
