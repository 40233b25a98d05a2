package gates

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign-dev/countersign/internal/bench/measure"
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
	product, err := measure.Beside("countersign")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var sessions []*sdk.ClientSession
	stop = func() {
		cancel() // kills what was started
		for _, s := range sessions {
			_ = s.Close() // it has ended
		}
	}
	defer func() {
		if err != nil {
			stop()
		}
	}()
	command := func(program string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir) // where the accepted definitions are
		return cmd
	}
	admission, err := admissionOf(readyFile)
	if err != nil {
		return nil, nil, err
	}
	serve, err := overHTTP(command(product, "mcp", "serve", "--listen", "127.0.0.1:0", "--ready-file", readyFile, "--upstream", "bench="+self+" mcp-server"), token)
	if err != nil {
		return nil, nil, err
	}
	paths = []*gatePath{{what: "admission over the gateway", call: admission}}
	for _, s := range []struct {
		what string
		gate bool
		over sdk.Transport
	}{
		{"server alone", false, &sdk.CommandTransport{Command: command(self, "mcp-server")}},
		{"call through mcp wrap", true, &sdk.CommandTransport{Command: command(product, "mcp", "wrap", "--name", "bench", "--ready-file", readyFile, "--", self, "mcp-server")}},
		{"call through mcp serve", true, serve},
	} {
		session, err := connectMCP(ctx, s.over)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", s.what, err)
		}
		sessions = append(sessions, session)
		paths = append(paths, &gatePath{what: s.what, gate: s.gate, call: func(ctx context.Context) error { return callMCP(ctx, session) }})
	}
	return paths, stop, nil
}

// connectMCP begins a session and reads the list of tools, as a client does.
func connectMCP(ctx context.Context, over sdk.Transport) (*sdk.ClientSession, error) {
	session, err := sdk.NewClient(&sdk.Implementation{Name: "countersign-bench", Version: "1"}, nil).Connect(ctx, over, nil)
	if err == nil {
		_, err = session.ListTools(ctx, nil)
	}
	return session, err
}

func callMCP(ctx context.Context, session *sdk.ClientSession) error {
	result, err := session.CallTool(ctx, &sdk.CallToolParams{Name: "echo", Arguments: json.RawMessage(mcpArguments)})
	if err == nil && result.IsError {
		err = fmt.Errorf("%w: %+v", measure.ErrNotAllowed, result.Content)
	}
	return err
}

// overHTTP starts a gate that serves HTTP.
func overHTTP(cmd *exec.Cmd, token string) (sdk.Transport, error) {
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
	go func() {
		_, _ = io.Copy(io.Discard, notes) // what it says later
		_ = cmd.Wait()                    // it was killed
	}()
	return &sdk.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: bearer(token)}, DisableStandaloneSSE: true}, nil
}

// bearer is a transport that shows a token.
type bearer string

func (token bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(token))
	return http.DefaultTransport.RoundTrip(r)
}

// MCPServerCmd is a server with one tool, which gives a text back.
type MCPServerCmd struct{}

func (*MCPServerCmd) Run(ctx context.Context) error {
	return mcpServer().Run(ctx, &sdk.StdioTransport{})
}

type echo struct {
	Text string `json:"text"`
}

func mcpServer() *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "bench", Version: "1"}, nil)
	sdk.AddTool(s, &sdk.Tool{Name: "echo", Description: "Gives a text back."}, func(_ context.Context, _ *sdk.CallToolRequest, in echo) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: in.Text}}}, nil, nil
	})
	return s
}
