package mcpgate

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/httpserve"
	"github.com/countersign-dev/countersign/mcp"
)

// DecideOptions are those of Decide.
type DecideOptions struct {
	Peer      func() (gateclient.Peer, error)
	Hold      time.Duration // default DefaultDecideHold
	Page      string        // where a person decides, with {workflow}
	Reads     bool
	Secrets   []string         // of ToolHive's signatures: any may have signed; none refuses all of them
	Listen    string           // loopback, unless there is a certificate
	Cert, Key string           // files
	Ready     func(url string) // called once it listens; may be nil

	Docker string // the name under which the tools of Docker's gateway are judged; "" refuses them

	AgentGateway string        // where agentgateway asks; "" for nowhere
	ClientCA     string        // file: who asks there needs a certificate of it
	Outcomes     time.Duration // how long agentgateway may take to show how a call ended; 0 for not waiting

	Err io.Writer
}

// DefaultDecideHold is under the time-out that ToolHive gives its webhooks, 10 s.
const DefaultDecideHold = 8 * time.Second

// Paths of the gateways that ask.
const (
	ToolHivePath = "/v1/webhooks/toolhive"
	DockerPath   = "/v1/interceptors/docker"
)

const (
	maxGates = 4096            // sessions: one for each caller of each server
	maxSkew  = 5 * time.Minute // between the time of a signature and now
	maxSeen  = 1 << 17         // signatures that could be sent again: more than 200 a second
)

// decider decides calls for MCP gateways that ask before they pass one on. It sees no definitions of
// tools, and of most gateways not how a call ends: it is reported with the outcome unknown. Close ends it.
type decider struct {
	o   DecideOptions
	log *logger
	now func() time.Time

	mu           sync.Mutex
	gates        map[gateKey]*callerGate
	closing      sync.WaitGroup          // sessions that end
	running      map[string]*admittedRun // whose outcome agentgateway will show, by an id that was given to it
	runningBytes int
	closed       bool

	// The signatures that were accepted, as long as their time would be: none counts twice.
	signatures sync.Mutex
	seen       map[[sha256.Size]byte]time.Time // until when
	swept      time.Time
}

// newDecider returns a decider.
func newDecider(o DecideOptions) *decider {
	if o.Hold == 0 {
		o.Hold = DefaultDecideHold
	}
	return &decider{o: o, log: &logger{w: o.Err}, now: time.Now, gates: map[gateKey]*callerGate{}, running: map[string]*admittedRun{}, seen: map[[sha256.Size]byte]time.Time{}}
}

// Close reports the ends of the sessions, of as many as begin to end within endTime.
func (d *decider) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, r := range d.running {
		r.late.Stop()
		r.report(mcp.Unknown)
	}
	clear(d.running)
	var ends []func()
	var late atomic.Int64
	until := time.Now().Add(endTime)
	for key, g := range d.gates {
		ends = append(ends, func() {
			if time.Now().Before(until) {
				g.Close(key.server)
				return
			}
			close(g.ending)
			late.Add(1)
		})
	}
	sideBySide(ends)
	if n := late.Load(); n > 0 {
		d.log.print(fmt.Sprintf("the ends of %d sessions are not on record: the gateway does not answer in time", n))
	}
	d.closing.Wait()
	clear(d.gates)
}

// check reports what is wrong with the options.
func (o DecideOptions) check() error {
	switch {
	case o.Docker != "" && !isLoopback(o.Listen):
		return fmt.Errorf("--listen %s is not on loopback: Docker's gateway shows no secret, so any machine could ask", o.Listen)
	case o.Cert == "" && !isLoopback(o.Listen):
		return fmt.Errorf("--listen %s is not on loopback: give --tls-cert and --tls-key", o.Listen)
	case o.AgentGateway != "" && o.ClientCA == "" && !isLoopback(o.AgentGateway):
		return fmt.Errorf("--agentgateway %s is not on loopback: give --tls-cert, --tls-key and --client-ca, or any machine could ask", o.AgentGateway)
	case o.ClientCA != "" && o.Cert == "":
		return errors.New("--client-ca needs --tls-cert and --tls-key")
	}
	return nil
}

// askedAt is an address where gateways ask.
type askedAt struct {
	httpserve.Bound
	url string
}

// open listens where the options say.
func (d *decider) open() ([]askedAt, error) {
	type place struct {
		address, clientCA, protocol string
		server                      *http.Server
	}
	var places []place
	if d.o.Docker != "" || len(d.o.Secrets) > 0 {
		places = append(places, place{d.o.Listen, "", "http/1.1", newHTTPServer(d)})
	}
	if d.o.AgentGateway != "" {
		h := newHTTPServer(http.HandlerFunc(d.agentGateway))
		h.Protocols = new(http.Protocols)
		h.Protocols.SetHTTP2(d.o.Cert != "")
		h.Protocols.SetUnencryptedHTTP2(d.o.Cert == "")
		places = append(places, place{d.o.AgentGateway, d.o.ClientCA, "h2", h})
	}
	scheme := map[bool]string{true: "https", false: "http"}[d.o.Cert != ""]
	var all []askedAt
	for _, p := range places {
		l, err := listen(p.address, d.o.Cert, d.o.Key, p.clientCA, p.protocol, d.log)
		if err != nil {
			for _, at := range all {
				_ = at.Listener.Close() // nothing has come yet
			}
			return nil, err
		}
		p.server.ReadTimeout = arrivalTime + d.o.Hold // a question and its answer are short
		all = append(all, askedAt{httpserve.Bound{Listener: l, Server: p.server}, scheme + "://" + l.Addr().String()})
	}
	return all, nil
}

// Decide answers gateways until ctx ends.
func Decide(ctx context.Context, o DecideOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	d := newDecider(o)
	addresses, err := d.open()
	if err != nil {
		return err
	}
	servers := make([]httpserve.Bound, len(addresses))
	for i, at := range addresses {
		servers[i] = at.Bound
		if o.Ready != nil {
			o.Ready(at.url)
		}
	}
	defer d.Close()
	// What waits for a person is still answered.
	return httpserve.Serve(ctx, stopTime+d.o.Hold, func() {}, servers...)
}

// ServeHTTP answers one gateway's question. Everything that is no question has status 422, too: a gateway
// may take another one for a permission.
func (d *decider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case len(r.Header.Values("Origin")) > 0: // a web page
		http.Error(w, "web pages decide nothing", http.StatusUnprocessableEntity)
	case r.Method == http.MethodPost && r.URL.Path == ToolHivePath:
		d.toolHive(w, r)
	case r.Method == http.MethodPost && r.URL.Path == DockerPath:
		d.docker(w, r)
	default:
		http.Error(w, "there is no such endpoint", http.StatusUnprocessableEntity)
	}
}

// gateKey is a server and a digest of the caller for whom its gateway asks: a name of a caller may be long.
type gateKey struct {
	server string
	caller [sha256.Size]byte
}

// callerGate is a caller's session with a server. Events of one session are sent one after the other: callers have
// sessions of their own so that none waits for another one's.
type callerGate struct {
	*Gate
	calls atomic.Int64 // that are decided, or whose outcome is not reported yet
	used  time.Time    // last, of the decider's mu
}

// admittedRun is a call that may run now.
type admittedRun struct {
	gate     *callerGate
	admitted Admitted
	began    time.Time
	late     *time.Timer // ends the wait for its outcome
}

// report is called once.
func (r *admittedRun) report(outcome string) {
	r.gate.Report(r.admitted, r.began, outcome)
	r.gate.calls.Add(-1)
}

// decide asks for the admission of a request, for a gateway that does not show how it ends. nil means that
// it may pass.
func (d *decider) decide(ctx context.Context, server, caller string, method string, params json.RawMessage) *mcp.Refusal {
	run, refusal := d.admit(ctx, server, caller, method, params)
	if run != nil {
		run.report(mcp.Unknown)
	}
	return refusal
}

// admit asks for the admission of a request. Without a refusal it may pass; run is nil if that needed no
// admission.
func (d *decider) admit(ctx context.Context, server, caller string, method string, params json.RawMessage) (run *admittedRun, refusal *mcp.Refusal) {
	switch {
	case mcp.GivesInput(method):
		return nil, refuse("bad_call", errInput)
	case !mcp.Governed(method, d.o.Reads):
		return nil, nil
	}
	g, err := d.gateOf(server, caller)
	if err != nil {
		d.log.note("a call is refused: " + err.Error())
		return nil, refuse("bad_call", err)
	}
	defer func() {
		if run == nil {
			g.calls.Add(-1)
		}
	}()
	call, err := mcp.ReadCall(method, params)
	if err != nil {
		call = mcp.Call{Server: server, Name: method, Caller: caller}
		g.Refused(call, "bad_call")
		return nil, refuse("bad_call", err)
	}
	call.Server, call.Caller = server, caller
	a, refusal := g.Admit(ctx, call, ctx.Done(), nil)
	if refusal != nil {
		return nil, refusal
	}
	if ctx.Err() != nil { // the gateway does not wait any more
		g.NotRun(a)
		return nil, noVerdict(ctx.Err())
	}
	return &admittedRun{gate: g, admitted: a, began: g.now()}, nil
}

// gateOf returns the session for a call, which it counts.
func (d *decider) gateOf(server, caller string) (*callerGate, error) {
	if err := mcp.CheckServerName(server); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := gateKey{server, sha256.Sum256([]byte(caller))}
	g := d.gates[key]
	if g == nil {
		if len(d.gates) >= maxGates && !d.dropGate() {
			return nil, fmt.Errorf("too many callers: calls of %d are under way or wait for a person", maxGates)
		}
		g = &callerGate{Gate: newGate(d.o.Peer, server, d.o.Hold, d.o.Err)}
		g.page = d.o.Page
		d.gates[key] = g
	}
	g.calls.Add(1)
	g.used = d.now()
	return g, nil
}

// dropGate ends the session without a call that nothing has used for the longest time, and reports whether there is
// one. The caller holds d.mu.
func (d *decider) dropGate() bool {
	var oldest *callerGate
	var key gateKey
	for k, g := range d.gates {
		if g.calls.Load() == 0 && (oldest == nil || g.used.Before(oldest.used)) && !g.isWaitedFor() {
			oldest, key = g, k
		}
	}
	if oldest == nil {
		return false
	}
	delete(d.gates, key)
	d.closing.Go(func() { oldest.Close(key.server) })
	return true
}

// toolHiveRequest is what ToolHive sends to a validating webhook.
type toolHiveRequest struct {
	Version   string          `json:"version"`
	UID       string          `json:"uid"`
	Principal json.RawMessage `json:"principal"`
	Request   json.RawMessage `json:"mcp_request"`
	Context   struct {
		Server string `json:"server_name"`
	} `json:"context"`
}

const toolHiveVersion = "v0.1.0"

// toolHive answers ToolHive. Everything that is no decision is answered with status 422, which ToolHive
// takes for a denial under either failure policy.
func (d *decider) toolHive(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if recover() != nil { // no answer at all may be a permission
			http.Error(w, "Countersign refused: internal_error", http.StatusUnprocessableEntity)
		}
	}()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = d.checkSignature(r.Header, body)
	}
	var q toolHiveRequest
	if err == nil && (json.Unmarshal(body, &q) != nil || q.Version != toolHiveVersion || q.UID == "" || len(q.UID) > 256) {
		err = errors.New("the request is not one of version " + toolHiveVersion)
	}
	var refusal *mcp.Refusal
	if err == nil {
		refusal, err = d.decideMessage(r.Context(), q)
	}
	if err == nil && refusal != nil && refusal.Code == noVerdictCode {
		err = errors.New(refusal.Text)
	}
	if err != nil {
		d.log.print("ToolHive: " + err.Error())
		http.Error(w, "Countersign refused: "+gateclient.Clean(err.Error()), http.StatusUnprocessableEntity)
		return
	}
	answer := map[string]any{"version": toolHiveVersion, "uid": q.UID, "allowed": refusal == nil}
	if refusal != nil {
		answer["code"], answer["message"], answer["reason"], answer["details"] = http.StatusForbidden, refusal.Text, refusal.Code, refusal
	}
	writeJSON(w, answer)
}

// decideMessage decides about the message in ToolHive's request. The error is what is wrong with it.
func (d *decider) decideMessage(ctx context.Context, q toolHiveRequest) (*mcp.Refusal, error) {
	var line bytes.Buffer
	if err := json.Compact(&line, q.Request); err != nil {
		return nil, errors.New("mcp_request is no JSON")
	}
	m, err := mcp.Parse(line.Bytes())
	if err != nil {
		return nil, err
	}
	if m.IsNotification() && mcp.Governed(m.Method, true) {
		return refuse("bad_call", errors.New("a call without an id asks for no answer")), nil
	}
	caller, err := mcp.CallerOf(q.Principal)
	if err != nil {
		return nil, err
	}
	return d.decide(ctx, q.Context.Server, caller, m.Method, m.Params), nil
}

// checkSignature holds the signature over time and body against the secrets.
func (d *decider) checkSignature(h http.Header, body []byte) error {
	stamp, given := h.Get("X-Toolhive-Timestamp"), strings.TrimPrefix(h.Get("X-Toolhive-Signature"), "sha256=")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || d.now().Sub(time.Unix(seconds, 0)).Abs() > maxSkew {
		return errors.New("the signature's time is none, or too far from now")
	}
	signature, err := hex.DecodeString(given)
	if err != nil {
		return errors.New("there is no signature")
	}
	for _, secret := range d.o.Secrets {
		sum := hmac.New(sha256.New, []byte(secret))
		sum.Write([]byte(stamp + "."))
		sum.Write(body)
		if hmac.Equal(sum.Sum(nil), signature) {
			return d.useSignature([sha256.Size]byte(signature), time.Unix(seconds, 0).Add(maxSkew))
		}
	}
	return errors.New("the signature is not that of a secret which is known here")
}

// useSignature refuses a signature that was used before. until is when its time is too old by itself.
func (d *decider) useSignature(signature [sha256.Size]byte, until time.Time) error {
	d.signatures.Lock()
	defer d.signatures.Unlock()
	now := d.now()
	if len(d.seen) >= maxSeen && now.Sub(d.swept) > time.Second {
		d.swept = now
		maps.DeleteFunc(d.seen, func(_ [sha256.Size]byte, until time.Time) bool { return now.After(until) })
	}
	if _, used := d.seen[signature]; used {
		return errors.New("the signed request was sent before")
	}
	if len(d.seen) >= maxSeen {
		return errors.New("too many signed requests in ten minutes")
	}
	d.seen[signature] = until
	return nil
}

// docker answers Docker's MCP gateway, which passes a call on if the answer is empty, whatever its status,
// and returns the answer to the client if it is not. So every refusal has a body.
func (d *decider) docker(w http.ResponseWriter, r *http.Request) {
	refusal := d.decideDocker(w, r)
	if refusal == nil {
		w.WriteHeader(http.StatusOK)
		return
	}
	writeJSON(w, refusal.Result())
}

func (d *decider) decideDocker(w http.ResponseWriter, r *http.Request) (refusal *mcp.Refusal) {
	if d.o.Docker == "" {
		return refuse("bad_configuration", errors.New("start the decision point with --docker NAME"))
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return refuse("bad_call", errors.New("the request is too long, or was cut off"))
	}
	method, params, err := mcp.ReadQuestion(body)
	if err != nil {
		return refuse("bad_call", err)
	}
	return d.decide(r.Context(), d.o.Docker, "", method, params)
}

func writeJSON(w http.ResponseWriter, body any) {
	text, err := json.Marshal(body)
	if err != nil { // it is made of texts
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // a gateway that is gone passes nothing on
}
