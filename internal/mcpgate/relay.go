package mcpgate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/mcp"
)

// Bounds of what a relay remembers.
const (
	maxInFlight = 1024     // requests of one side without an answer
	maxHeld     = 64 << 20 // bytes of requests that are judged, or run under an admission
	maxCanceled = 4096     // requests that the client has cancelled and the server has not answered
)

// recentIDs are the keys of requests whose answer may never come, the oldest first.
type recentIDs []string

// add adds a key, in the place of the oldest one if there are most.
func (ids *recentIDs) add(key string, most int) {
	if len(*ids) >= most {
		*ids = slices.Delete(*ids, 0, 1)
	}
	*ids = append(*ids, key)
}

// remove removes a key, and reports whether it was there.
func (ids *recentIDs) remove(key string) bool {
	i := slices.Index(*ids, key)
	if i >= 0 {
		*ids = slices.Delete(*ids, i, i+1)
	}
	return i >= 0
}

// relay passes messages between a client and a server. What needs no admission passes as the bytes that
// came; so does an admitted call. It is safe for concurrent use.
type relay struct {
	gate      *Gate
	catalogue *catalogue
	reads     bool // resources and prompts are admitted, too
	client    *lineWriter
	server    *lineWriter
	revisions []string // of the protocol, that client and server may agree on

	learning chan struct{} // held by the one that asks for the list of tools

	judging sync.WaitGroup
	closed  chan struct{} // after close has refused what waited

	mu    sync.Mutex
	agent struct{ name, version string }
	asked map[string]*request // requests of the client that have no answer, by id
	held  int                 // bytes of the governed ones
	// canceled are the ids of requests that reached the server and were cancelled. The server may still
	// answer them, so no other request gets their ids before.
	canceled recentIDs
	owed     recentIDs // requests of the server that have no answer
	own      recentIDs // requests of the gate to the client that have no answer
	opens    bool      // the client can ask its user to open a URL
	agreed   bool      // client and server have agreed on a revision
	ended    bool      // nothing is judged any more
}

// request is a request of the client.
type request struct {
	mcp.Message
	admitted Admitted
	governed bool
	sent     bool          // to the server
	written  chan struct{} // closed once it was written, or could not be
	began    time.Time
	size     int           // of the message, if it is governed
	giveUp   chan struct{} // closed when the client cancels
	canceled bool
	answer   chan mcp.Message // of a request of the gate itself
}

func newRelay(g *Gate, c *catalogue, reads bool, client, server io.Writer) *relay {
	return &relay{
		gate: g, catalogue: c, reads: reads, client: &lineWriter{w: client}, server: &lineWriter{w: server}, revisions: mcp.RevisionsOfStreams, learning: make(chan struct{}, 1),
		asked: map[string]*request{}, closed: make(chan struct{}),
	}
}

// lineWriter writes whole messages.
type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(line)
	return err
}

// sayClient answers the client in the server's place.
func (r *relay) sayClient(answer []byte, err error) {
	if err == nil {
		err = r.client.write(append(answer, '\n'))
	}
	if err != nil {
		r.gate.log.print("an answer could not be written: " + err.Error())
	}
}

// fromClient treats a line of the client and answers one that cannot be passed on. Any other error ends
// the session.
func (r *relay) fromClient(ctx context.Context, line []byte) error {
	m, err := mcp.Parse(line)
	if err != nil {
		r.sayClient(mcp.Error(r.unreadID(line), mcp.CodeInvalid, err.Error(), nil))
		return nil
	}
	if err = r.accept(ctx, m, line); errors.Is(err, mcp.ErrMessage) {
		r.sayClient(mcp.Invalid(err))
		return nil
	}
	return err
}

// unreadID is the id of a request that cannot be passed on, "" unless it is certain and no other request's.
func (r *relay) unreadID(line []byte) mcp.ID {
	id, answers := mcp.UnreadID(line)
	r.mu.Lock()
	defer r.mu.Unlock()
	if answers || r.uses(id.Key()) {
		return ""
	}
	return id
}

// accept treats a message of the client. The error is mcp.ErrMessage for a request whose id is in use;
// any other one ends the session.
func (r *relay) accept(ctx context.Context, m mcp.Message, line []byte) error {
	switch {
	case m.IsRequest():
		return r.request(ctx, m, line)
	case m.IsNotification():
		return r.notification(m, line)
	}
	r.mu.Lock()
	owed, own := r.owed.remove(m.ID.Key()), r.own.remove(m.ID.Key())
	r.mu.Unlock()
	if own {
		return nil // that the page was opened, or not, decides nothing
	}
	if !owed {
		r.gate.log.note("the client answered what the server had not asked: dropped")
		return nil
	}
	return r.server.write(line)
}

// request treats a request of the client.
func (r *relay) request(ctx context.Context, m mcp.Message, line []byte) error {
	if mcp.GivesInput(m.Method) {
		r.sayClient(refuse("bad_call", errInput).Answer(m.Method, m.ID))
		return nil
	}
	if revision, has := m.AskedRevision(); has && !slices.Contains(r.revisions, revision) {
		r.sayClient(r.unknownRevision(m.ID, revision))
		return nil
	}
	q := &request{Message: m, governed: mcp.Governed(m.Method, r.reads), written: make(chan struct{}), giveUp: make(chan struct{})}
	if q.sent = !q.governed; q.governed {
		q.size = len(line)
	} else {
		q.Params = nil // nothing needs it any more
	}
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		return io.EOF
	}
	used, full := r.remember(q)
	if !used && !full && q.governed {
		r.judging.Go(func() { r.judge(ctx, q, line) })
	}
	if m.Method == "initialize" {
		r.agent.name, r.agent.version = m.Client()
		r.opens = m.OpensURLs()
	}
	r.mu.Unlock()
	switch {
	case used:
		return fmt.Errorf("%w: its id is that of a request without an answer", mcp.ErrMessage)
	case full:
		r.sayClient(refuse("too_many_requests", errors.New("too many requests wait for an answer")).Answer(m.Method, m.ID))
		return nil
	case q.governed:
		return nil
	}
	return r.pass(q, line)
}

// pass writes a request to the server. Its cancellation waits for that: a server that reads the cancellation
// first does not know the id, and runs the request.
func (r *relay) pass(q *request, line []byte) error {
	defer close(q.written)
	return r.server.write(line)
}

// unknownRevision is the answer to a request in a revision in which methods could have effects that the
// gate does not see.
func (r *relay) unknownRevision(id mcp.ID, revision string) ([]byte, error) {
	data := map[string]any{"supported": r.revisions, "requested": gateclient.Clean(revision)}
	return mcp.Error(id, mcp.CodeRevision, "the gate does not know this revision of the protocol", data)
}

// errInput says why input for a running call is refused.
var errInput = errors.New("it gives a running call what no policy sees")

// remember remembers a request, if its id is free and there is room. The caller holds r.mu.
func (r *relay) remember(q *request) (used, full bool) {
	key := q.ID.Key()
	used = r.uses(key)
	full = len(r.asked) >= maxInFlight || q.governed && r.held+q.size > maxHeld
	if !used && !full {
		r.asked[key] = q
		r.held += q.size
	}
	return used, full
}

// uses reports whether an id is that of a request which the server may still answer. The caller holds r.mu.
func (r *relay) uses(key string) bool { return r.asked[key] != nil || slices.Contains(r.canceled, key) }

// forget forgets a request. The caller holds r.mu.
func (r *relay) forget(q *request) {
	delete(r.asked, q.ID.Key())
	r.held -= q.size
}

// judge has a request admitted and passes it on, or refuses it.
func (r *relay) judge(ctx context.Context, q *request, line []byte) {
	admitted, refusal := r.admit(ctx, q)
	r.mu.Lock()
	canceled := q.canceled
	if refusal != nil || canceled {
		r.forget(q)
	} else {
		q.admitted, q.sent, q.began = admitted, true, r.gate.now()
	}
	r.mu.Unlock()
	switch {
	case refusal != nil && !canceled:
		r.sayClient(refusal.Answer(q.Method, q.ID))
	case refusal == nil && canceled:
		r.gate.NotRun(admitted)
	case refusal == nil:
		if err := r.pass(q, line); err != nil {
			r.gate.log.print("an admitted call did not reach the server: " + err.Error())
		}
	}
}

// admit asks for the admission of a request.
func (r *relay) admit(ctx context.Context, q *request) (a Admitted, refusal *mcp.Refusal) {
	call, err := mcp.ReadCall(q.Method, q.Params)
	if err != nil {
		call, refusal = mcp.Call{Name: q.Method}, refuse("bad_call", err)
	}
	r.mu.Lock()
	call.Server, call.Agent, call.Version = r.catalogue.server, r.agent.name, r.agent.version
	r.mu.Unlock()
	if refusal == nil && q.Method == mcp.MethodCall {
		if !r.catalogue.isListed() {
			r.learn(ctx, q)
		}
		refusal = r.catalogue.check(&call)
	}
	if refusal != nil {
		r.gate.Refused(call, refusal.Code)
		return a, refusal
	}
	if a, refusal = r.gate.Admit(ctx, call, q.giveUp, r.showPage); refusal != nil || q.Method != mcp.MethodCall {
		return a, refusal
	}
	// The definition may have changed while a person was waited for.
	if refusal = r.catalogue.check(&call); refusal != nil {
		r.gate.NotRun(a)
	}
	return a, refusal
}

// How long the gate waits for a list of tools that it asks for itself, and how many parts it reads of it.
const (
	listTime = 10 * time.Second
	maxPages = 64
)

// learn asks the server for its tools, for a client that calls one and has not asked for the list in this
// session.
func (r *relay) learn(ctx context.Context, call *request) {
	ctx, cancel := context.WithTimeout(ctx, min(listTime, r.gate.hold))
	defer cancel()
	select {
	case r.learning <- struct{}{}:
		defer func() { <-r.learning }()
	case <-ctx.Done():
		return
	case <-call.giveUp:
		return
	}
	cursor := ""
	for page := 0; page < maxPages && (page == 0 && !r.catalogue.isListed() || cursor != ""); page++ {
		m, err := r.ask(ctx, cursor, call)
		if err == nil {
			_, err = r.catalogue.add(m.Result)
		}
		if err != nil {
			r.gate.log.print("the server's list of tools is not known: " + err.Error())
			return
		}
		cursor = mcp.NextCursor(m.Result)
	}
}

var errNoList = errors.New("it gives none")

// ask asks the server for a part of its list of tools.
func (r *relay) ask(ctx context.Context, cursor string, call *request) (mcp.Message, error) {
	id := mcp.ID(strconv.Quote("countersign-" + uuid.NewString())) // no client can guess it
	line, err := mcp.AskForList(id, cursor, call.Params)
	if err != nil {
		return mcp.Message{}, err
	}
	q := &request{Message: mcp.Message{ID: id, Method: mcp.MethodList}, sent: true, written: make(chan struct{}), answer: make(chan mcp.Message, 1)}
	r.mu.Lock()
	_, full := r.remember(q)
	r.mu.Unlock()
	if full {
		return mcp.Message{}, errNoList
	}
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asked, id.Key())
	}()
	if err := r.pass(q, append(line, '\n')); err != nil {
		return mcp.Message{}, err
	}
	select {
	case m := <-q.answer:
		if m.Failed || m.Result == nil {
			return mcp.Message{}, errNoList
		}
		return m, nil
	case <-ctx.Done():
	case <-call.giveUp:
	}
	return mcp.Message{}, errNoList
}

// showPage has the client's user open the page of an approval, if the client can. The server cannot use
// the request's id: it cannot guess it.
func (r *relay) showPage(workflow, page string) {
	id := mcp.ID(strconv.Quote("countersign-" + uuid.NewString()))
	r.mu.Lock()
	opens := r.opens
	if opens {
		r.own.add(id.Key(), maxInFlight)
	}
	r.mu.Unlock()
	if opens {
		r.sayClient(mcp.AskToOpen(id, workflow, page))
	}
}

// notification treats a notification of the client. A call that asks for no answer is none.
func (r *relay) notification(m mcp.Message, line []byte) error {
	switch {
	case mcp.Governed(m.Method, true), mcp.GivesInput(m.Method):
		r.gate.log.note("the client sent " + m.Method + " without an id: dropped")
		return nil
	case m.Method != mcp.MethodCanceled:
		return r.server.write(line)
	}
	q := r.cancel(m.CanceledID().Key())
	if q == nil {
		return nil // what did not reach the server, or has its answer
	}
	<-q.written
	if q.governed {
		r.gate.Report(q.admitted, q.began, mcp.Canceled)
	}
	return r.server.write(line)
}

// cancel marks a request as cancelled and returns it if it had reached the server.
func (r *relay) cancel(key string) *request {
	r.mu.Lock()
	defer r.mu.Unlock()
	q := r.asked[key]
	switch {
	case q == nil:
		return nil
	case q.sent:
		r.forget(q) // the client expects no answer any more
		r.canceled.add(key, maxCanceled)
		return q
	case !q.canceled:
		q.canceled = true
		close(q.giveUp)
	}
	return nil
}

// fromServer treats a message of the server. An error ends the session.
func (r *relay) fromServer(line []byte) error {
	m, err := mcp.Parse(line)
	switch {
	case err != nil:
		r.gate.log.note("the server wrote what is no message: dropped: " + err.Error())
		if id, answers := mcp.UnreadID(line); answers {
			r.unread(id, err)
		}
		return nil
	case m.IsNotification():
		return r.client.write(line)
	case m.IsRequest():
		r.mu.Lock()
		twice := slices.Contains(r.owed, m.ID.Key())
		if !twice {
			r.owed.add(m.ID.Key(), maxInFlight)
		}
		r.mu.Unlock()
		if twice {
			r.gate.log.note("the server asked twice with one id: dropped")
			return nil
		}
		return r.client.write(line)
	}
	return r.response(m, line)
}

// response treats the server's answer to a request.
func (r *relay) response(m mcp.Message, line []byte) error {
	r.mu.Lock()
	q := r.asked[m.ID.Key()]
	asked := q != nil && q.sent
	listed := asked && q.Method == mcp.MethodList && !m.Failed
	switch {
	case asked && q.answer != nil:
		r.forget(q)
		q.answer <- m
		r.mu.Unlock()
		return nil
	case listed:
		q.sent = false // its id is in use until the listing is read
	case asked:
		r.forget(q)
		r.agreed = r.agreed || q.Method == "initialize" && r.agrees(m)
	}
	canceled := r.canceled.remove(m.ID.Key())
	r.mu.Unlock()
	switch {
	case canceled: // the client does not wait for it any more
		return nil
	case !asked:
		r.gate.log.note("the server answered what it was not asked: dropped")
		return nil
	case q.governed:
		r.gate.Report(q.admitted, q.began, m.Outcome())
	case listed:
		defer func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.forget(q)
		}()
		return r.listing(q, m, line)
	case q.Method == "initialize" && !m.Failed && !r.agrees(m):
		r.sayClient(r.unknownRevision(q.ID, m.Revision()))
		return nil
	}
	return r.client.write(line)
}

// agrees reports whether the answer to an initialize agrees on a revision that the gate knows.
func (r *relay) agrees(m mcp.Message) bool {
	return !m.Failed && slices.Contains(r.revisions, m.Revision())
}

// isInitialized reports whether client and server have agreed on a revision.
func (r *relay) isInitialized() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.agreed
}

// lost answers a request of the client whose answer does not come. outcome is that of a call: mcp.Unknown if it
// may have run.
func (r *relay) lost(id mcp.ID, outcome, reason string) {
	r.mu.Lock()
	q := r.asked[id.Key()]
	waits := q != nil && q.sent
	if waits {
		r.forget(q)
	}
	r.canceled.remove(id.Key())
	r.mu.Unlock()
	switch {
	case !waits:
		return
	case q.answer != nil:
		q.answer <- mcp.Message{ID: id, Failed: true}
		return
	case q.governed:
		r.gate.Report(q.admitted, q.began, outcome)
	}
	r.sayClient(mcp.Failure(q.ID, reason))
}

// unread answers a request of the client whose answer cannot be passed on.
func (r *relay) unread(id mcp.ID, err error) {
	r.lost(id, mcp.Unknown, "the server's answer: "+err.Error())
}

// abandon takes back a request whose client has gone: what has not reached the server does not. With
// withdraw, the server is told of what has.
func (r *relay) abandon(ctx context.Context, m mcp.Message, withdraw bool) {
	r.mu.Lock()
	q := r.asked[m.ID.Key()]
	sent := q != nil && q.sent
	r.mu.Unlock()
	if q == nil || sent && !withdraw {
		return
	}
	if line, err := mcp.Cancellation(q.ID); err == nil {
		_ = r.fromClient(ctx, append(line, '\n')) // a server that has ended needs none
	}
}

// listing passes on what may be shown of a list of tools.
func (r *relay) listing(q *request, m mcp.Message, line []byte) error {
	shown, err := r.catalogue.add(m.Result)
	switch {
	case err != nil:
		r.sayClient(refuse("bad_listing", err).Answer(q.Method, q.ID))
		return nil
	case shown == nil:
		return r.client.write(line)
	}
	r.sayClient(mcp.Result(q.ID, shown), nil)
	return nil
}

// close reports the calls that have no answer. It does not wait for a client that reads no answers.
func (r *relay) close() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	judged := make(chan struct{})
	go func() {
		r.judging.Wait()
		close(judged)
	}()
	select {
	case <-judged:
	case <-time.After(closeTime):
	}
	close(r.closed)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.asked {
		if q.governed && q.sent {
			r.gate.Report(q.admitted, q.began, mcp.Unknown)
		}
	}
	clear(r.asked)
}

// readLines calls use with every line of in, its line break included. A longer one than a message may
// have is given as its beginning, which is no message; what has no line break at the end is no line.
func readLines(in io.Reader, use func([]byte) error) error {
	b := bufio.NewReaderSize(in, 64<<10)
	for {
		var line []byte
		for {
			part, err := b.ReadSlice('\n')
			if len(line) <= mcp.MaxMessage {
				line = append(line, part...)
			}
			if err == nil {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
		}
		if len(line) > mcp.MaxMessage {
			line = line[:1] // "{" or the like
		}
		if err := use(line); err != nil {
			return err
		}
	}
}
