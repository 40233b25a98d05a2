package streams

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/testkit"
)

// TestSilentClientIsLetGo: an admitter that is gone without closing its connection, as with its machine, is
// a member of the queue group for seconds only.
func TestSilentClientIsLetGo(t *testing.T) {
	t.Parallel()
	f := start(t)
	at, err := url.Parse(f.srv.ClientURL())
	ok(t, err)
	gone, err := net.Dial("tcp", at.Host)
	ok(t, err)
	defer gone.Close()
	_, err = fmt.Fprint(gone, `CONNECT {"user":"admitter","pass":"pw-admitter","verbose":false,"protocol":1,"lang":"go","version":"1"}`+"\r\nSUB gov.admit.> admitter 1\r\nPING\r\n")
	ok(t, err)
	lines := bufio.NewReader(gone)
	for line := ""; !strings.HasPrefix(line, "PONG"); {
		line, err = lines.ReadString('\n')
		ok(t, err)
	}
	there := f.conn("admitter")
	_, err = there.QueueSubscribe("gov.admit.>", "admitter", func(m *nats.Msg) { _ = m.Respond(nil) })
	ok(t, err)
	ok(t, there.Flush())
	ok(t, gone.SetReadDeadline(time.Now().Add(testkit.Guard)))
	_, err = io.Copy(io.Discard, lines) // until the server closes it
	ok(t, err)
	runtime := f.conn("runtime")
	for range 20 {
		_, err := runtime.RequestWithContext(ctx(t), "gov.admit.acme.agenthook", nil)
		ok(t, err)
	}
}
