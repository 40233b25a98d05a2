package ingest

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// TestWaitingBytes: subject, headers and body of an event count against the bound of waiting bytes.
func TestWaitingBytes(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	committer, err := streams.NewCommitter(n.Conn("admitter"), streams.CommitterOptions{Stream: "GOV"})
	servicetest.OK(t, err)
	committer.Close() // it takes no event
	text := strings.Repeat("x", 1000)
	for name, m := range map[string]*nats.Msg{
		"subject": {Subject: text}, "a header": {Header: nats.Header{"ce-x": {text}}}, "a header that is dropped": {Header: nats.Header{"X": {text}}}, "body": {Data: []byte(text)},
	} {
		term := &leaseTerm{committer: committer, pending: 1, bytes: MaxPendingBytes - len(text) + 1}
		if no := term.appendEvent(m, streams.Msg{}); no != refusedBusy {
			t.Errorf("%s: %+v", name, no)
		}
	}
}
