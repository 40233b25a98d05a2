// Package mcpgate is a gate in front of servers of the Model Context Protocol, in three forms. Wrap stands between
// one client and a server that it starts. Serve serves many callers over HTTP and keeps sessions with servers for
// each. Decide answers other MCP gateways that ask before they pass a call on. In the first two a relay passes the
// messages, and a Gate asks for admission and reports. All fail closed: what is not admitted does not reach the
// server. Begin reading with Wrap and Gate.Admit.
package mcpgate

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/buildinfo"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/mcp"
)

// DefaultHold is how long a call waits for its verdict, and for a person. Many clients give up after a
// minute, some after five seconds: those give up first, and may repeat the call.
const DefaultHold = 25 * time.Second

const (
	reportTime = 10 * time.Second // for a report to be stored
	retryTime  = time.Minute      // until a report of a call that ran is not tried again
	endTime    = 5 * time.Second  // for the last reports of a session
)

// Bounds of the calls of one session that wait for a person.
const (
	maxWaiting      = 256
	maxWaitingBytes = 32 << 20 // of their events
)

// Gate asks for admission of the calls of one session, and reports them. It is safe for concurrent use.
type Gate struct {
	peer    func() (gateclient.Peer, error)
	hold    time.Duration
	page    string // address of an approval's page, with {workflow}; "" for none
	session string
	metaKey [32]byte // of the digests of _meta on record: without it they cannot be compared with those of guesses
	log     *logger
	now     func() time.Time

	begun   chan struct{} // closed once the beginning of the session was sent
	ending  chan struct{} // closed once the session ends: nothing is tried again
	turn    chan struct{} // held by the one that writes the session's next event: first tries are stored in the order of their times
	reports background

	mu      sync.Mutex
	known   gateclient.Peer
	asker   *gateclient.Asker
	calls   int
	waiting map[string]waiting // calls that wait for a person, by what they are
}

// waiting is a call that was refused until a person has decided. Its repetition sends the same event.
type waiting struct {
	call     mcp.Call
	event    []byte
	callID   string
	asker    *gateclient.Asker // with the token that the call came with
	workflow string
	until    time.Time
}

// awaiting is w once it waits for a person.
func (w waiting) awaiting(r gateclient.Reply, now time.Time) waiting {
	w.workflow, w.until = r.Workflow, r.WaitsUntil(now)
	return w
}

// newGate returns the gate of a new session with a server. Close ends it.
func newGate(peer func() (gateclient.Peer, error), server string, hold time.Duration, log io.Writer) *Gate {
	g := &Gate{
		peer: peer, hold: hold, session: "mcp-" + uuid.NewString(), log: &logger{w: log}, now: time.Now,
		begun: make(chan struct{}), ending: make(chan struct{}), turn: make(chan struct{}, 1), waiting: map[string]waiting{},
	}
	_, _ = rand.Read(g.metaKey[:]) // never fails
	go func() {
		defer close(g.begun)
		g.send("the beginning of the session", func(v mcp.Event) ([]byte, error) { return mcp.SessionEvent(true, server, v) }, "")
	}()
	return g
}

// Close reports the end of the session and waits for what is still to be reported, for a bounded time.
// It is called once.
func (g *Gate) Close(server string) {
	close(g.ending)
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.mu.Lock()
		for _, w := range g.waiting { // nothing can repeat them any more
			g.reportBlocked(w, string(events.Ask))
		}
		g.waiting = map[string]waiting{}
		g.mu.Unlock()
		g.reports.wait()
		<-g.begun
		g.send("the end of the session", func(v mcp.Event) ([]byte, error) { return mcp.SessionEvent(false, server, v) }, "")
	}()
	select {
	case <-done:
	case <-time.After(endTime):
		g.log.print("the last events are not on record: the gateway does not answer")
	}
}

// Admitted is a call that may run now, once.
type Admitted struct {
	call     mcp.Call
	id       string
	approval hook.Approval     // that was used
	asker    *gateclient.Asker // with the token that the call came with
}

// Admit asks whether a call may run. A refusal says why it may not. It waits for a person until the
// budget ends or giveUp is closed; the identical call then goes on waiting for the same person.
// waits, which may be nil, is called once it waits for a person on a page.
func (g *Gate) Admit(ctx context.Context, c mcp.Call, giveUp <-chan struct{}, waits func(workflow, page string)) (Admitted, *mcp.Refusal) {
	ctx, cancel := context.WithTimeout(ctx, g.hold)
	defer cancel()
	a, err := g.connect(ctx)
	if err != nil {
		g.log.print(err.Error()) // it may name files of the gate, which are none of the client's business
		return Admitted{}, refuse("bad_configuration", errConfiguration)
	}
	if c.Meta != "" {
		keyed := hmac.New(sha256.New, g.metaKey[:])
		keyed.Write([]byte(c.Meta))
		c.Meta = fmt.Sprintf("%x", keyed.Sum(nil))
	}
	key, err := sameCall(c)
	if err != nil {
		return Admitted{}, refuse("bad_arguments", err)
	}
	other := g.waitsForOther(key, c)
	w, r, err := g.propose(ctx, a, key, c)
	if err == nil && r.Waits() {
		w = w.awaiting(r, g.now())
		if page := r.Page(g.page); page != "" && waits != nil {
			waits(r.Workflow, page)
		}
		r, err = a.Await(ctx, giveUp, w.event, r)
	}
	switch {
	case err != nil:
		if !g.keep(key, w) && w.callID != "" && !gateclient.IsNotStored(err) { // an allow would stay open
			g.reportBlocked(w, noVerdictCode)
		}
		return Admitted{}, noVerdict(err)
	case r.Waits():
		return Admitted{}, g.pending(key, w, r, other)
	case r.Verdict != events.Allow:
		g.reportBlocked(w, string(r.Verdict))
		refusal := refuse(string(r.Verdict), errors.New(r.Reason))
		refusal.Reason = string(r.Cause)
		return Admitted{}, refusal
	}
	err = a.CheckReceipt(ctx, r, guard.Execution{Session: g.session, ToolCallID: w.callID, Tool: c.ToolName(), Arguments: c.Arguments})
	if err != nil {
		g.reportBlocked(w, "bad_receipt")
		return Admitted{}, refuse("bad_receipt", err)
	}
	return Admitted{c, w.callID, hook.Approval{Workflow: r.Workflow, Decision: r.DecisionRef}, a}, nil
}

// errConfiguration is what a client is told of a configuration that cannot be used.
var errConfiguration = errors.New("the gate's configuration cannot be used: its standard error says why")

// waitsForOther reports whether the caller has a call of the same tool that waits for a person with other arguments,
// and none that is identical.
func (g *Gate) waitsForOther(key string, c mcp.Call) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, identical := g.waiting[key]; identical {
		return false
	}
	for _, w := range g.waiting {
		if w.call.ToolName() == c.ToolName() && w.call.Caller == c.Caller && !bytes.Equal(w.call.Arguments, c.Arguments) && !g.now().After(w.until) {
			return true
		}
	}
	return false
}

// propose asks once, in its turn. Of a call that is not asked for it returns no w.
func (g *Gate) propose(ctx context.Context, a *gateclient.Asker, key string, c mcp.Call) (w waiting, r gateclient.Reply, err error) {
	select {
	case <-g.begun:
	case <-ctx.Done():
		return w, r, gateclient.ErrTooLate
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return w, r, gateclient.ErrTooLate
	}
	defer func() { <-g.turn }()
	if w, err = g.proposal(key, c); err != nil {
		return waiting{}, r, err
	}
	w.call, w.asker = c, a
	r, err = a.Propose(ctx, w.event, w.workflow)
	return w, r, err
}

// callerKey is that of the peer with the token that a request came with, in the context of what is judged.
type callerKey struct{}

// connect returns the asker for the caller in ctx. Without one, as for reports, it is the one for the gateway that the
// configuration names now, or for the caller's newest token.
func (g *Gate) connect(ctx context.Context) (*gateclient.Asker, error) {
	p, has := ctx.Value(callerKey{}).(gateclient.Peer)
	if !has {
		var err error
		if p, err = g.peer(); err != nil {
			return nil, err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asker == nil || p != g.known {
		g.known, g.asker = p, gateclient.NewAsker(p)
	}
	return g.asker, nil
}

// sameCall names what makes two calls identical: server, tool, its definition, arguments and _meta in any
// order and spelling, and the caller.
func sameCall(c mcp.Call) (string, error) {
	canonical, err := strictjson.CanonicalBytes(c.Arguments)
	if err != nil {
		return "", fmt.Errorf("the arguments: %w", err)
	}
	definition := ""
	if c.Tool != nil {
		definition = c.Tool.Digest
	}
	return fmt.Sprintf("%s %s %x %x %s", c.ToolName(), definition, sha256.Sum256(canonical), sha256.Sum256([]byte(c.Caller)), c.Meta), nil
}

// proposal is the event to send: that of an identical call that waits for a person, which this call
// takes over, or a new one.
func (g *Gate) proposal(key string, c mcp.Call) (waiting, error) {
	g.mu.Lock()
	w, found := g.waiting[key]
	delete(g.waiting, key)
	if !found || g.now().After(w.until) {
		g.calls++
		w, found = waiting{call: c, callID: fmt.Sprintf("mcp-%d", g.calls)}, false
	}
	g.mu.Unlock()
	if found {
		return w, nil
	}
	v, err := g.envelope(w.callID)
	if err == nil {
		w.event, err = c.Propose(v)
	}
	if err == nil {
		err = gateclient.CheckSize(w.event)
	}
	return w, err
}

func (g *Gate) envelope(callID string) (mcp.Event, error) {
	id, err := uuid.NewRandom()
	return mcp.Event{ID: id.String(), Time: g.now(), Session: g.session, CallID: callID, Adapter: buildinfo.Version()}, err
}

// keep remembers a call that waits for a person. It reports whether there was room.
func (g *Gate) keep(key string, w waiting) bool {
	if w.workflow == "" {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for k, old := range g.waiting {
		if g.now().After(old.until) {
			delete(g.waiting, k)
		}
	}
	old, other := g.waiting[key]
	if !other && !g.hasRoom(w) {
		return false
	}
	if other { // of identical calls at once: nothing repeats the earlier one any more
		g.reportBlocked(old, string(events.Ask))
	}
	g.waiting[key] = w
	return true
}

// isWaitedFor reports whether a call waits for a person.
func (g *Gate) isWaitedFor() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, w := range g.waiting {
		if !g.now().After(w.until) {
			return true
		}
	}
	return false
}

// hasRoom reports whether one more call may wait. The caller holds g.mu.
func (g *Gate) hasRoom(w waiting) bool {
	size := len(w.event)
	for _, other := range g.waiting {
		size += len(other.event)
	}
	return len(g.waiting) < maxWaiting && size <= maxWaitingBytes
}

// pending remembers a call that waits for a person, and says what to do. other reports that one with other arguments
// waits too.
func (g *Gate) pending(key string, w waiting, r gateclient.Reply, other bool) *mcp.Refusal {
	w = w.awaiting(r, g.now())
	text := r.Pending()
	if r.Expires != "" {
		text += ", until " + gateclient.Clean(r.Expires)
	}
	text += "."
	refusal := &mcp.Refusal{Code: string(events.Ask), Reason: string(r.Cause), Workflow: r.Workflow, Expires: r.Expires, URL: r.Page(g.page)}
	if other {
		refusal.Reason = string(gateclient.CauseOtherArgs)
		text += " An approval of this tool with other arguments does not hold for this call."
	}
	if !g.keep(key, w) {
		g.reportBlocked(w, string(events.Ask))
		refusal.Text = text + " It cannot be repeated: too many calls wait."
		return refusal
	}
	refusal.Text, refusal.Retry = text+" Do not try another way; repeat the identical call once it is approved. "+r.Where(g.page), mcp.RetryIdentical
	return refusal
}

const noVerdictCode = "no_verdict"

// noVerdict is the refusal of a call without a verdict.
func noVerdict(err error) *mcp.Refusal {
	refusal := refuse(noVerdictCode, err)
	refusal.Reason = string(gateclient.CauseOf(err))
	if errors.Is(err, gateclient.ErrTooLarge) {
		refusal.Reason = string(gateclient.CauseNotAccepted)
	}
	return refusal
}

// refuse is what the client and its model are told.
func refuse(code string, err error) *mcp.Refusal {
	return &mcp.Refusal{Code: code, Text: gateclient.Refusal(code, err)}
}

// Report reports, in the background, how an admitted call ended that had reached the server. Unless the gateway does not
// accept it, a report is tried again; the caller may have a newer token by then. Each try sends the same event: the
// earlier one may be on record though its answer was lost, and of two the second counts for nothing.
func (g *Gate) Report(a Admitted, began time.Time, outcome string) {
	ended := g.now()
	var event []byte
	write := func(v mcp.Event) (_ []byte, err error) { // in its first turn
		if event == nil {
			event, err = a.call.Report(v, began, ended, outcome, a.approval)
		}
		return event, err
	}
	g.report(func() {
		pauses, until := retry.New(firstRetry, lastRetry), g.now().Add(retryTime)
		for {
			err := g.store(a.asker, write, a.id)
			if err == nil {
				return
			}
			if gateclient.CauseOf(err) == gateclient.CauseNotAccepted || g.now().After(until) || !g.pause(pauses.Next()) {
				g.log.print("a call is not on record: " + err.Error())
				return
			}
		}
	})
}

// Pauses between two tries of a report.
const firstRetry, lastRetry = 500 * time.Millisecond, 10 * time.Second

// pause waits, and reports whether the session still goes on.
func (g *Gate) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-g.ending:
		return false
	}
}

// NotRun reports, in the background, an admitted call that did not reach the server.
func (g *Gate) NotRun(a Admitted) {
	g.reportBlocked(waiting{call: a.call, callID: a.id, asker: a.asker}, "")
}

// Refused reports a call that was refused without an admission, and returns once it is on record or
// cannot be: a client that makes up calls gets no faster than its reports.
func (g *Gate) Refused(c mcp.Call, code string) {
	g.mu.Lock()
	g.calls++
	id := fmt.Sprintf("mcp-%d", g.calls)
	g.mu.Unlock()
	<-g.begun
	g.send("a refused call", func(v mcp.Event) ([]byte, error) { return c.ReportBlocked(v, code) }, id)
}

func (g *Gate) reportBlocked(w waiting, code string) {
	g.report(func() {
		err := g.store(w.asker, func(v mcp.Event) ([]byte, error) { return w.call.ReportBlocked(v, code) }, w.callID)
		g.notStored("a refused call", err)
	})
}

// reportChanges reports, in the background, definitions that are not the accepted ones; then it says
// whether that is on record.
func (g *Gate) reportChanges(server string, changes []mcp.Change, then func(stored bool)) {
	write := func(v mcp.Event) ([]byte, error) { return mcp.ReportChanges(server, changes, v) }
	g.report(func() {
		then(g.send("a changed definition", write, "definition-"+uuid.NewString()))
	})
}

// report runs send in the background. Close waits for it, unless it has begun to wait already.
func (g *Gate) report(send func()) {
	f := func() { <-g.begun; send() }
	if !g.reports.run(f) {
		go f()
	}
}

// send stores an event and says whether it could. A failure is told to the user; the correlator misses
// the event.
func (g *Gate) send(what string, write func(mcp.Event) ([]byte, error), callID string) bool {
	err := g.store(nil, write, callID)
	g.notStored(what, err)
	return err == nil
}

func (g *Gate) notStored(what string, err error) {
	if err != nil {
		g.log.print(what + " is not on record: " + err.Error())
	}
}

// store stores an event in its turn. The time for it begins with the turn: every holder of it gives it
// back in bounded time. If the gateway refuses the caller's newest token, it is stored under that of own, which may be
// nil.
func (g *Gate) store(own *gateclient.Asker, write func(mcp.Event) ([]byte, error), callID string) error {
	a, err := g.connect(context.Background())
	if err != nil {
		return err
	}
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	ctx, cancel := context.WithTimeout(context.Background(), reportTime)
	defer cancel()
	v, err := g.envelope(callID)
	if err != nil {
		return err
	}
	event, err := write(v)
	if err != nil {
		return err
	}
	_, _, err = a.Post(ctx, event, "")
	if err != nil && gateclient.CauseOf(err) == gateclient.CauseNotAuthorized && own != nil && own != a {
		_, _, err = own.Post(ctx, event, "")
	}
	return err
}

// logger writes lines to standard error, where clients of stdio servers keep or drop them.
type logger struct {
	mu    sync.Mutex
	w     io.Writer
	notes int       // since
	since time.Time // the beginning of a minute
}

func (l *logger) print(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(text)
}

// maxNotes bounds the notes of a minute.
const maxNotes = 60

// note prints what is to be said of a client's or a server's message. It leaves out what is too much: a server that
// writes nothing but garbage fills no disk.
func (l *logger) note(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) > time.Minute {
		if l.notes > maxNotes {
			l.write(fmt.Sprintf("%d notes like the last one were left out", l.notes-maxNotes))
		}
		l.notes, l.since = 0, now
	}
	if l.notes++; l.notes <= maxNotes {
		l.write(text)
	}
}

// write writes a line. The caller holds l.mu.
func (l *logger) write(text string) { fmt.Fprintln(l.w, "countersign: "+gateclient.Clean(text)) }
