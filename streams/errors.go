// Package streams is everything Countersign knows about NATS: accounts, roles
// and permissions as data, the embedded server, provisioning of streams and KV
// buckets, the durability class of a running server, group commit, and reading
// a shard's log in order. It knows no policy.
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

	// ErrDoubt: nobody knows whether the messages are stored (no
	// acknowledgement, a connection lost while waiting, an acknowledgement that
	// does not fit). The caller must treat them as not stored for what it
	// promises, and as possibly stored for what it writes next.
	ErrAmbiguous = errors.New("streams: stored or not is unknown")

	// ErrRefused: certainly nothing of the call is stored.
	ErrRefused = errors.New("streams: not stored")

	// ErrFenced: another writer has moved the fence; the caller must step down.
	ErrFenced = errors.New("streams: fenced off by another writer")

	// ErrBatchBusy: the server holds no place for another atomic batch (other
	// clients may occupy all of them); nothing is stored, try again.
	ErrBatchBusy = errors.New("streams: no atomic batch to be had")

	// ErrTooLarge: more messages or bytes than one call may carry.
	ErrTooLarge = errors.New("streams: too large")

	// ErrReservedHeader: a message carries a header that steers the server.
	ErrReservedHeader = errors.New("streams: header reserved for the server")

	// ErrBusy: as many messages wait as may; nothing of the call is stored.
	ErrBusy = errors.New("streams: too many messages wait")

	// ErrClosed: the Committer is closed.
	ErrClosed = errors.New("streams: closed")

	// ErrIdentity: a request carries no identity that the server vouches for.
	ErrIdentity = errors.New("streams: no authenticated identity on the request")

	// ErrDirectGet: a bucket lets any of its replicas answer reads.
	ErrDirectGet = errors.New("streams: the bucket allows direct get")

	// ErrRewound: the stream holds fewer messages than were already read from
	// it, or was created anew: acknowledged messages are gone.
	ErrRewound = errors.New("streams: stream was rewound or recreated")
)

// GapError says that the log is not dense: Want is the sequence that had to
// come next, Got the one that came.
type GapError struct {
	Stream    string
	Want, Got uint64
}

func (e *GapError) Error() string {
	return fmt.Sprintf("stream %s has a gap: sequence %d is missing, next is %d; the log was tampered with or lost data",
		e.Stream, e.Want, e.Got)
}

// Difference is one setting of an existing object that is not as wanted.
type Difference struct{ Object, Field, Have, Want string }

func (d Difference) String() string {
	return fmt.Sprintf("%s: %s is %s, want %s", d.Object, d.Field, d.Have, d.Want)
}

// ConflictError lists how existing streams and buckets differ from what is
// wanted. Nothing that exists was changed.
type ConflictError struct{ Differences []Difference }

func (e *ConflictError) Error() string {
	lines := make([]string, len(e.Differences))
	for i, d := range e.Differences {
		lines[i] = d.String()
	}
	return "existing streams differ from what Countersign needs and were left alone (change them by hand or use another server): " +
		strings.Join(lines, "; ")
}

// PublishError tells which messages of a PublishEvents call are not known to
// be stored, by their index, and why. All others are stored.
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

// Unwrap gives every cause.
func (e *PublishError) Unwrap() []error {
	out := make([]error, 0, len(e.Failed))
	for _, err := range e.Failed {
		out = append(out, err)
	}
	return out
}
