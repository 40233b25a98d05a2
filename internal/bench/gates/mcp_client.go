package gates

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"github.com/countersign-dev/countersign/internal/bench/measure"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/mcp"
)

// mcpArguments are those of the measured calls.
const mcpArguments = `{"text":"a line of text"}`

// openMCP starts the server alone, the server behind each gate, and returns the kinds of calls. The first
// is admission.
func openMCP(ctx context.Context, dir, readyFile, token string) (paths []*gatePath, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var started []*exec.Cmd
	stop = func() {
		cancel()
		for _, cmd := range started {
			_ = cmd.Wait() // it was killed
		}
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, self, append([]string{measure.ProductArg}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir) // where the accepted definitions are
		started = append(started, cmd)
		return cmd
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	admission, err := admissionOf(readyFile)
	if err != nil {
		return nil, nil, err
	}
	paths = []*gatePath{{what: "admission over the gateway", call: admission}}
	for _, s := range []struct {
		what string
		gate bool
		open func() (mcpConn, error)
	}{
		{"server alone", false, func() (mcpConn, error) { return overPipes(command("mcp-server")) }},
		{"call through mcp wrap", true, func() (mcpConn, error) {
			return overPipes(command("mcp", "wrap", "--name", "bench", "--ready-file", readyFile, "--", self, measure.ProductArg, "mcp-server"))
		}},
		{"call through mcp serve", true, func() (mcpConn, error) {
			return overHTTP(command("mcp", "serve", "--listen", "127.0.0.1:0", "--ready-file", readyFile, "--upstream", "bench="+self+" "+measure.ProductArg+" mcp-server"), token)
		}},
	} {
		c, err := s.open()
		if err == nil {
			err = greet(ctx, c)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.what, err)
		}
		id := 2
		paths = append(paths, &gatePath{what: s.what, gate: s.gate, call: func(ctx context.Context) error {
			id++
			return ask(ctx, c, id, mcp.MethodCall, `{"name":"echo","arguments":`+mcpArguments+`}`)
		}})
	}
	return paths, stop, nil
}

// mcpConn sends a message and returns the answer, nil for a notification.
type mcpConn func(ctx context.Context, line []byte) ([]byte, error)

func greet(ctx context.Context, c mcpConn) error {
	if err := ask(ctx, c, 1, "initialize", `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"countersign-bench","version":"1"}}`); err != nil {
		return err
	}
	if _, err := c(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")); err != nil {
		return err
	}
	return ask(ctx, c, 2, mcp.MethodList, `{}`)
}

var errMCPAnswer = errors.New("the answer is no result")

func ask(ctx context.Context, c mcpConn, id int, method, params string) error {
	answer, err := c(ctx, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`+"\n", id, method, params))
	if err != nil {
		return err
	}
	m, err := mcp.Parse(answer)
	if err == nil && (m.ID != mcp.ID(fmt.Sprint(id)) || m.Outcome() != mcp.Succeeded) {
		err = fmt.Errorf("%w: %.300s", errMCPAnswer, answer)
	}
	return err
}

// overPipes starts a server and speaks with it over standard input and output.
func overPipes(cmd *exec.Cmd) (mcpConn, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	return func(_ context.Context, line []byte) ([]byte, error) {
		if _, err := in.Write(line); err != nil || !bytes.Contains(line, []byte(`"id":`)) {
			return nil, err
		}
		return lines.ReadBytes('\n')
	}, nil
}

// overHTTP starts a gate and speaks with it over HTTP, in a session.
func overHTTP(cmd *exec.Cmd, token string) (mcpConn, error) {
	notes, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	address, lines := "", bufio.NewScanner(notes)
	for address == "" && lines.Scan() {
		_, address, _ = strings.Cut(lines.Text(), "serving bench at ")
	}
	go func() { _, _ = io.Copy(io.Discard, notes) }() // what it says later
	session := ""
	return func(ctx context.Context, line []byte) ([]byte, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(line))
		if err != nil {
			return nil, err
		}
		r.Header = http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
		if session != "" {
			r.Header.Set(mcp.HeaderSession, session)
			r.Header.Set(mcp.HeaderRevision, "2025-11-25")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer answer.Body.Close()
		if id := answer.Header.Get(mcp.HeaderSession); id != "" {
			session = id
		}
		return io.ReadAll(answer.Body)
	}, nil
}

// MCPServerCmd is a server with one tool, which does nothing.
type MCPServerCmd struct{}

// mcpAnswers are the results of the server, by method.
var mcpAnswers = map[string]string{
	"initialize":   `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`,
	mcp.MethodList: `{"tools":[{"name":"echo","description":"Gives a text back.","inputSchema":{"type":"object","properties":{"text":{"type":"string"}}}}]}`,
	mcp.MethodCall: `{"content":[{"type":"text","text":"a line of text"}]}`,
}

func (*MCPServerCmd) Run(stdio ui.Stdio) error {
	lines := bufio.NewReader(stdio.In)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil //nolint:nilerr // the client has ended
		}
		m, err := mcp.Parse(line)
		if err != nil {
			return err
		}
		if result, ok := mcpAnswers[m.Method]; ok && m.IsRequest() {
			if _, err := fmt.Fprintf(stdio.Out, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result); err != nil {
				return err
			}
		}
	}
}
