package testkit

import (
	"bufio"
	"fmt"
	"net"
	"strings"
)

// DeafNATS dials servers that take connections and requests, answer pings, and answer no request, as one does that
// is cut off from the others. It needs no network, so a connection over it may live in a bubble of synctest, until it reconnects: nats.go shares timers.
type DeafNATS struct{}

// Dial connects to one of them.
func (DeafNATS) Dial(_, address string) (net.Conn, error) {
	client, server := net.Pipe()
	go func() {
		defer func() { _ = server.Close() }()
		_, _ = fmt.Fprintf(server, `INFO {"server_id":%q,"max_payload":1048576,"headers":true,"proto":1}`+"\r\n", address)
		for lines := bufio.NewScanner(server); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "PING") {
				_, _ = fmt.Fprint(server, "PONG\r\n")
			}
		}
	}()
	return client, nil
}
