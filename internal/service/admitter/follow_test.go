package admitter

import (
	"context"
	"errors"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

func TestMark(t *testing.T) {
	var m watermark
	servicetest.OK(t, m.await(t.Context(), 0))
	done := make(chan error)
	for range 2 {
		go func() { done <- m.await(t.Context(), 3) }()
	}
	for at := range uint64(3) {
		m.raise(at + 1)
	}
	m.raise(1)
	for range 2 {
		servicetest.OK(t, <-done)
	}
	servicetest.OK(t, m.await(t.Context(), 3))
	m.set(1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.await(ctx, 2); !errors.Is(err, context.Canceled) {
		t.Errorf("a mark that went back: %v", err)
	}
}
