package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events"
)

// State describes what a stream holds.
type State struct {
	FirstSeq uint64 // 1 for a fresh stream, even while it is empty
	LastSeq  uint64 // 0 for a fresh stream
	Messages uint64
	Bytes    uint64    // of its messages as stored
	Created  time.Time // UTC; identifies the stream's incarnation
	Replicas int       // as configured; 1 on a single server
	At       time.Time // of this state, by the broker's clock
}

// StreamState reads a stream's state from the server.
func StreamState(ctx context.Context, js jetstream.JetStream, stream string) (State, error) {
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return State{}, fmt.Errorf("reading the state of stream %s: %w", stream, explainStream(err))
	}
	info := st.CachedInfo()
	return State{
		FirstSeq: max(1, info.State.FirstSeq), LastSeq: info.State.LastSeq,
		Messages: info.State.Msgs, Bytes: info.State.Bytes, Created: info.Created.UTC(), Replicas: max(1, info.Config.Replicas),
		At: info.TimeStamp.UTC(),
	}, nil
}

func explainStream(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: it was never provisioned (countersign up does it), its store is gone, or this is the wrong server", err)
	}
	return err
}

// IncarnationName names the incarnation of a stream by its name and its creation time, e.g.
// "GOV@20261120T064150.123456789Z". In evidence, a recreated stream is another shard.
func IncarnationName(stream string, created time.Time) string {
	return stream + "@" + created.UTC().Format("20060102T150405.000000000Z")
}

// LastBySubject reads the last message of a subject (wildcards allowed). It returns nil if there is
// none.
func LastBySubject(ctx context.Context, js jetstream.JetStream, stream, subj string) (*events.LogMessage, error) {
	return getMessage(ctx, js.Conn(), stream, map[string]any{"last_by_subj": subj}, answerTimeout)
}

// MessageAt reads the message with a sequence. It returns nil if there is none.
func MessageAt(ctx context.Context, js jetstream.JetStream, stream string, seq uint64) (*events.LogMessage, error) {
	return getMessage(ctx, js.Conn(), stream, map[string]any{"seq": seq}, answerTimeout)
}

// NextBySubject reads the first message at or after a sequence with a matching subject (wildcards
// allowed). It returns nil if there is none.
func NextBySubject(ctx context.Context, js jetstream.JetStream, stream, subj string, from uint64) (*events.LogMessage, error) {
	return getMessage(ctx, js.Conn(), stream, map[string]any{"seq": max(1, from), "next_by_subj": subj}, searchTimeout)
}

// EachBySubject yields the messages with a matching subject from a sequence on, in order, up to the
// last one that the stream has when it is asked for. An error is the last thing that it yields.
func EachBySubject(ctx context.Context, js jetstream.JetStream, stream, subj string, from uint64) iter.Seq2[*events.LogMessage, error] {
	return func(yield func(*events.LogMessage, error) bool) {
		for next := from; ; {
			m, err := NextBySubject(ctx, js, stream, subj, next)
			if err != nil {
				yield(nil, err)
				return
			}
			if m == nil || !yield(m, nil) {
				return
			}
			next = m.Seq + 1
		}
	}
}

const (
	// answerTimeout bounds one request to JetStream. A server that dies, or that does not know its leader any
	// more, does not answer, and without a bound the request then lasts as long as its context.
	answerTimeout = 10 * time.Second
	// searchTimeout bounds the search for the next message of a subject: the server may read its whole store.
	searchTimeout = 5 * time.Minute

	codeNoMessage = 10037
)

// request sends a message and waits for the answer, at most wait.
func request(ctx context.Context, nc *nats.Conn, m *nats.Msg, wait time.Duration) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return nc.RequestMsgWithContext(ctx, m)
}

// getMessage uses STREAM.MSG.GET and never direct get, because its answer separates the server's
// statements (sequence, time, subject) from the message's own headers.
func getMessage(ctx context.Context, nc *nats.Conn, stream string, query map[string]any, wait time.Duration) (*events.LogMessage, error) {
	req, err := json.Marshal(query)
	if err != nil {
		return nil, err
	}
	msg, err := request(ctx, nc, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: req}, wait)
	if err != nil {
		return nil, fmt.Errorf("reading a message of stream %s: %w", stream, err)
	}
	var resp struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &resp); err != nil {
		return nil, fmt.Errorf("reading a message of stream %s: the answer is not JSON", stream)
	}
	switch {
	case resp.Error != nil && resp.Error.ErrCode == codeNoMessage:
		return nil, nil
	case resp.Error != nil:
		return nil, fmt.Errorf("reading a message of stream %s: %w", stream, resp.Error)
	case resp.Message == nil:
		return nil, fmt.Errorf("reading a message of stream %s: empty answer", stream)
	}
	m := resp.Message
	out := &events.LogMessage{Seq: m.Seq, Subject: m.Subject, Time: m.Time.UTC(), Body: m.Data}
	if len(m.Header) > 0 {
		// A publisher may have written a header that does not parse; the message still counts.
		if h, err := nats.DecodeHeadersMsg(m.Header); err == nil {
			out.Header = h
		}
	}
	return out, nil
}

// apiError is JetStream's error object.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *apiError) Error() string {
	return fmt.Sprintf("JetStream error %d: %s", e.ErrCode, e.Description)
}
