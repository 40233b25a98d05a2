package streams

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrBehind: what was read comes from a replica that lags behind the stream's leader.
var ErrBehind = errors.New("streams: the replica that was read lags behind the leader")

// JetStream's words for a cluster that has no leader at the moment, for the stream
// or for itself.
var leaderlessCodes = []int{
	10005, // no suitable peers
	10008, // temporarily unavailable
	10009, // not the leader
}

var transientErrors = []error{
	ErrBehind, ErrAmbiguous,
	context.DeadlineExceeded, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrDisconnected, nats.ErrStaleConnection,
	nats.ErrReconnectBufExceeded, nats.ErrConnectionReconnecting,
	jetstream.ErrJetStreamNotEnabled, // nothing answers on the JetStream API, as while a server starts
	jetstream.ErrNoStreamResponse,
}

// Transient reports whether an error says that JetStream could not be reached or
// had no leader: the same may succeed a moment later.
func Transient(err error) bool {
	for _, e := range transientErrors {
		if errors.Is(err, e) {
			return true
		}
	}
	code := 0
	var own *apiError
	var api *jetstream.APIError
	switch {
	case errors.As(err, &own):
		code = own.ErrCode
	case errors.As(err, &api):
		code = int(api.ErrorCode)
	}
	for _, c := range leaderlessCodes {
		if code == c {
			return true
		}
	}
	return false
}
