package streams

import (
	"context"
	"errors"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ErrBehind: the replica that answered a read lags behind the stream's leader.
var ErrBehind = errors.New("streams: the replica that was read lags behind the leader")

// leaderlessCodes are JetStream's error codes for a cluster that has no leader at the moment, for
// the stream or for itself.
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

// Transient reports whether an error says that JetStream could not be reached or had no leader, so
// that a retry may succeed.
func Transient(err error) bool {
	if slices.ContainsFunc(transientErrors, func(e error) bool { return errors.Is(err, e) }) {
		return true
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
	return slices.Contains(leaderlessCodes, code)
}
