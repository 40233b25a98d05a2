package streams

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestTransient(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("receipt.key is missing"), false},
		{nats.ErrAuthorization, false},
		{nats.ErrNoServers, false},
		{jetstream.ErrStreamNotFound, false},
		{ErrDirectGet, false},
		{context.Canceled, false},
		{fmt.Errorf("opening: %w", &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "temporarily unavailable"}), true},
		{fmt.Errorf("reading: %w", &apiError{Code: 503, ErrCode: 10008}), true},
		{fmt.Errorf("reading: %w", &apiError{Code: 404, ErrCode: 10059}), false},
		{fmt.Errorf("reading: %w", context.DeadlineExceeded), true},
		{errors.Join(errors.New("x"), nats.ErrTimeout), true},
		{fmt.Errorf("reading: %w", ErrBehind), true},
	} {
		if got := Transient(tt.err); got != tt.want {
			t.Errorf("%v: %t", tt.err, got)
		}
	}
}
