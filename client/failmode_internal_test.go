package client

import (
	"context"
	"errors"
	"testing"
)

// The queue is bounded, in order, and never waited for.
func TestReporterIsBounded(t *testing.T) {
	entered, release, got := make(chan struct{}, 1), make(chan struct{}), make(chan byte, 2*maxReports)
	var lost []error
	r := newReporter(func(ctx context.Context, e report) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		select {
		case <-release:
		case <-ctx.Done():
			return ctx.Err()
		}
		got <- e.event[0]
		return nil
	}, func(_ []byte, err error) { lost = append(lost, err) })
	const more = 3
	for i := range maxReports + 1 + more {
		r.add(report{event: []byte{byte(i)}})
		if i == 0 {
			<-entered // the first is being published and takes no place
		}
	}
	if n := int(r.dropped.Load()); n != more || len(lost) != n || !errors.Is(lost[0], ErrReportsFull) {
		t.Fatalf("%d lost: %v", n, lost)
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.flush(canceled); !errors.Is(err, context.Canceled) {
		t.Errorf("flush says %v while nothing is published", err)
	}
	close(release)
	if err := r.flush(context.Background()); err != nil {
		t.Fatal(err)
	}
	for want := byte(0); len(got) > 0; want++ {
		if b := <-got; b != want {
			t.Fatalf("event %d came as number %d", b, want)
		}
	}
	r.close()
}

// Close does not wait for attempts that lead nowhere.
func TestReporterCloses(t *testing.T) {
	entered, lost := make(chan struct{}), make(chan error, 2)
	r := newReporter(func(ctx context.Context, _ report) error {
		close(entered)
		<-ctx.Done()
		return ctx.Err()
	}, func(_ []byte, err error) { lost <- err })
	r.add(report{event: []byte("a")})
	<-entered
	r.add(report{event: []byte("b")})
	r.close()
	for range 2 {
		if err := <-lost; !errors.Is(err, ErrReportsClosed) {
			t.Errorf("%v", err)
		}
	}
}

// A failure that passes is tried again.
func TestReporterTriesAgain(t *testing.T) {
	tries := 0
	r := newReporter(func(context.Context, report) error {
		if tries++; tries == 1 {
			return errors.New("no stream yet")
		}
		return nil
	}, func(_ []byte, err error) { t.Errorf("lost: %v", err) })
	r.add(report{event: []byte("a")})
	if err := r.flush(context.Background()); err != nil || tries != 2 {
		t.Errorf("%d tries, %v", tries, err)
	}
	r.close()
}
