package mcpgate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign-dev/countersign/internal/retry"
	"github.com/countersign-dev/countersign/internal/service/shares"
	"github.com/countersign-dev/countersign/mcp"
)

// remote is a session with a server that speaks streamable HTTP. It is the io.Writer of a relay's server
// side: what is written is posted, and what the server answers is given to the relay. The caller's token
// is not known here.
type remote struct {
	url    string
	token  func() (string, error) // the gate's own for this server; "" for none
	client *http.Client
	log    *logger
	room   room   // of its caller; set with relay
	relay  *relay // set before the first message
	gone   func() // called when the server has forgotten the session; set with relay
	ctx    context.Context
	stop   context.CancelFunc
	work   background // closed once the session ends: nothing more is sent to the server
	// listens begins the stream of what the server says by itself.
	listens sync.Once

	mu        sync.Mutex
	stateless bool
	revision  string
	session   string
	asked     map[string]*posted // requests without an answer, by the key of their id
}

// posted is a request to the server.
type posted struct {
	hangUp  context.CancelFunc // takes it back
	written atomic.Bool        // to the connection, in whole
	over    chan struct{}      // closed once nothing of it is sent or read any more
}

// sendTime bounds what is no request: it has no answer to wait for.
const sendTime = 10 * time.Second

const eventStream = "text/event-stream"

func newRemote(ctx context.Context, url string, token func() (string, error), client *http.Client, stateless bool, log *logger) *remote {
	u := &remote{url: url, token: token, client: client, stateless: stateless, log: log, room: room{all: shares.New(heldMemory)}, asked: map[string]*posted{}}
	u.ctx, u.stop = context.WithCancel(ctx)
	if stateless {
		u.revision = mcp.Stateless
	}
	return u
}

// Write sends a message. A request is sent in the background; others are sent when Write returns, so
// that they keep their order.
func (u *remote) Write(line []byte) (int, error) {
	m, err := mcp.Parse(line)
	if err != nil {
		return 0, err
	}
	if m.IsRequest() {
		return u.begin(m, line)
	}
	ctx, cancel := context.WithTimeout(u.ctx, sendTime)
	defer cancel()
	if m.Method == mcp.MethodCanceled {
		if u.takeBack(ctx, m.CanceledID()); u.stateless { // without sessions, to hang up is to cancel
			return len(line), nil
		}
	}
	answer, err := u.post(ctx, m, line)
	if errors.Is(err, errForgotten) {
		u.gone()
	}
	if err != nil {
		u.log.note("a server did not take a message: " + err.Error())
		return len(line), nil // its requests fail by themselves
	}
	answer.Body.Close()
	if m.Method == "notifications/initialized" && answer.StatusCode < 300 {
		u.listens.Do(func() { u.work.run(u.listen) })
	}
	return len(line), nil
}

// begin sends a request in the background.
func (u *remote) begin(m mcp.Message, line []byte) (int, error) {
	ctx, hangUp := context.WithCancel(u.ctx)
	q := &posted{hangUp: hangUp, over: make(chan struct{})}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.work.run(func() { u.ask(ctx, q, m, line) }) {
		hangUp()
		return 0, errEnding
	}
	u.asked[m.ID.Key()] = q
	return len(line), nil
}

// errEnding is why a request is not sent any more.
var errEnding = errors.New("its session ends")

// takeBack hangs up a request that the client has cancelled: without sessions, and if the server does not
// have it yet. Its cancellation, which is another post, could arrive before it otherwise.
func (u *remote) takeBack(ctx context.Context, id mcp.ID) {
	u.mu.Lock()
	q := u.asked[id.Key()]
	u.mu.Unlock()
	switch {
	case q == nil:
	case u.stateless:
		q.hangUp()
	case !q.written.Load():
		q.hangUp()
		select {
		case <-q.over:
		case <-ctx.Done():
		}
	}
}

// ask sends a request and gives what comes back to the relay.
func (u *remote) ask(ctx context.Context, q *posted, m mcp.Message, line []byte) {
	defer func() {
		q.hangUp()
		u.mu.Lock()
		defer u.mu.Unlock()
		if key := m.ID.Key(); u.asked[key] == q { // not a later request with the same id
			delete(u.asked, key)
		}
		close(q.over)
	}()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(w httptrace.WroteRequestInfo) {
		if w.Err == nil {
			q.written.Store(true)
		}
	}})
	answer, err := u.post(ctx, m, line)
	switch {
	case errors.Is(err, errForgotten):
		u.relay.lost(m.ID, mcp.Failed, "the server has ended the session: begin a new one with initialize")
		u.gone()
		return
	case err != nil:
		u.relay.lost(m.ID, mcp.Unknown, "the server does not answer")
		return
	}
	u.keepSession(m, answer)
	at := &position{pause: firstResume}
	err = u.read(answer, &m, at)
	answer.Body.Close()
	if !errors.Is(err, errAnswered) && !u.resume(ctx, &m, at) {
		outcome, reason := withoutResponse(answer.StatusCode)
		if errors.Is(err, shares.ErrNoRoom) {
			reason = noRoomForAnswer
		}
		u.relay.lost(m.ID, outcome, reason)
	}
}

// withoutResponse is the outcome of a call whose HTTP answer has no response of JSON-RPC, and what the client is
// told. By a status from 400 to 499 the server says that it has refused the request.
func withoutResponse(status int) (outcome, reason string) {
	switch status / 100 {
	case 2:
		return mcp.Unknown, "the server's answer was cut off, or is none"
	case 4:
		return mcp.Failed, statusText(status)
	}
	return mcp.Unknown, statusText(status)
}

func statusText(status int) string { return fmt.Sprintf("the server answered with status %d", status) }

// position is where a stream goes on that has broken off, or that its server has closed meanwhile.
type position struct {
	event string        // the id of its last event; "" if it cannot go on
	pause time.Duration // until the next try, as the server asks
}

// Bounds of resuming a stream.
const (
	firstResume = time.Second
	minResume   = 50 * time.Millisecond
	maxResume   = 30 * time.Second // between two tries
	maxTries    = 5                // without a new event
	maxEventID  = 1024
)

// resume reads on in the stream that answers a request, and reports whether it has the answer. It gives up
// when there is nothing new for several tries.
func (u *remote) resume(ctx context.Context, asked *mcp.Message, at *position) bool {
	for tries := 0; at.event != "" && !u.stateless && tries < maxTries; tries++ {
		if retry.Sleep(ctx, at.pause) != nil {
			return false
		}
		before := at.event
		answer, err := u.do(ctx, http.MethodGet, nil, mcp.Message{}, at.event)
		if err != nil {
			continue
		}
		if answer.StatusCode == http.StatusOK {
			err = u.read(answer, asked, at)
		}
		answer.Body.Close()
		if errors.Is(err, errAnswered) {
			return true
		}
		if hasNoStream(answer.StatusCode) {
			return false
		}
		if at.event != before {
			tries = -1
		}
	}
	return false
}

// passingStatus are those by which a server refuses now what it may give later: with another token, or to fewer requests.
var passingStatus = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}

// hasNoStream reports whether a server has no stream to read, by the status of its answer to a GET.
func hasNoStream(status int) bool {
	return status/100 == 4 && !slices.Contains(passingStatus, status)
}

// keepSession remembers the session that an initialize began.
func (u *remote) keepSession(m mcp.Message, answer *http.Response) {
	if id := answer.Header.Get(mcp.HeaderSession); m.Method == "initialize" && !u.stateless && len(id) <= 1024 {
		u.mu.Lock()
		u.session = id
		u.mu.Unlock()
	}
}

// errForgotten reports that a server does not know the session any more.
var errForgotten = errors.New("it has ended the session")

// post sends a message. By the protocol, the status 404 ends a session.
func (u *remote) post(ctx context.Context, m mcp.Message, line []byte) (*http.Response, error) {
	answer, err := u.do(ctx, http.MethodPost, bytes.TrimRight(line, "\r\n"), m, "")
	if err != nil || answer.StatusCode/100 == 2 {
		return answer, err
	}
	u.log.note(statusText(answer.StatusCode))
	u.mu.Lock()
	session := u.session
	u.mu.Unlock()
	if answer.StatusCode == http.StatusNotFound && session != "" {
		answer.Body.Close()
		return nil, errForgotten
	}
	return answer, nil
}

// do sends a request. event is the id of the last event of the stream that goes on, "" for a new one.
func (u *remote) do(ctx context.Context, method string, body []byte, m mcp.Message, event string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, u.url, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its address is no URL")
	}
	token, err := u.token()
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	u.mu.Lock()
	revision, session := u.revision, u.session
	u.mu.Unlock()
	header := map[string]string{"Accept": "application/json, " + eventStream, mcp.HeaderRevision: revision, mcp.HeaderSession: session, "Last-Event-ID": event}
	if method == http.MethodPost {
		header["Content-Type"] = "application/json"
	}
	if u.stateless {
		maps.Copy(header, m.Headers(u.relay.catalogue.find))
	}
	for name, value := range header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	answer, err := u.client.Do(r)
	if err != nil {
		return nil, errors.New("it does not answer")
	}
	return answer, nil
}

// errAnswered ends the reading of an answer that has what was asked for.
var errAnswered = errors.New("answered")

// read gives an answer's messages to the relay: one, or a stream of them. asked is the request, nil for a
// stream that answers none. It returns errAnswered after the response to the request, and keeps at.
func (u *remote) read(answer *http.Response, asked *mcp.Message, at *position) error {
	in := u.room.read(answer.Body)
	defer in.Release()
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if media == eventStream {
		return readEvents(in, at, func(data []byte) error { return u.deliver(data, asked) })
	}
	body, err := io.ReadAll(io.LimitReader(in, mcp.MaxMessage+1))
	if errors.Is(err, shares.ErrNoRoom) {
		return err
	}
	if err != nil || len(body) > mcp.MaxMessage {
		return errors.New("the answer is too long, or was cut off")
	}
	return u.deliver(body, asked)
}

// deliver gives a message to the relay. A response to another request than the one that was asked on this
// stream is dropped.
func (u *remote) deliver(data []byte, asked *mcp.Message) error {
	if bytes.ContainsAny(data, "\r\n") { // between members: a string cannot have one
		var b bytes.Buffer
		if json.Compact(&b, data) != nil {
			return nil
		}
		data = b.Bytes()
	}
	m, err := mcp.Parse(data)
	if err != nil {
		u.log.note("a server sent what is no message: dropped: " + err.Error())
		if id, answers := mcp.UnreadID(data); answers && asked != nil && id.Key() == asked.ID.Key() {
			u.relay.unread(id, err)
			return errAnswered
		}
		return nil
	}
	response := m.Method == ""
	if response && (asked == nil || m.ID.Key() != asked.ID.Key()) {
		u.log.note("a server answered what it was not asked: dropped")
		return nil
	}
	if response && asked.Method == "initialize" && slices.Contains(mcp.Revisions, m.Revision()) {
		u.mu.Lock()
		u.revision = m.Revision()
		u.mu.Unlock()
	}
	if err := u.relay.fromServer(append(data, '\n')); err != nil {
		return err
	}
	if response {
		return errAnswered
	}
	return nil
}

// listen reads what the server says by itself, while the session lasts and the server has such a stream. It
// goes on behind the last event, after the pause that the server asks for; while the server fails, the pauses grow.
func (u *remote) listen() {
	pauses, at := retry.New(firstResume, maxResume), &position{}
	for u.ctx.Err() == nil {
		answer, err := u.do(u.ctx, http.MethodGet, nil, mcp.Message{}, at.event)
		streamed := err == nil && answer.StatusCode == http.StatusOK
		if streamed {
			_ = u.read(answer, nil, at) // it is read again
			pauses.Reset()
		}
		if err == nil {
			answer.Body.Close()
			if hasNoStream(answer.StatusCode) {
				return
			}
		}
		pause := at.pause
		if pause == 0 || !streamed {
			pause = max(pause, pauses.Next())
		}
		if retry.Sleep(u.ctx, pause) != nil {
			return
		}
	}
}

// end ends the session with the server.
func (u *remote) end() {
	u.work.close()
	u.mu.Lock()
	session := u.session
	u.mu.Unlock()
	if session != "" {
		ctx, cancel := context.WithTimeout(u.ctx, terminateTime)
		if answer, err := u.do(ctx, http.MethodDelete, nil, mcp.Message{}, ""); err == nil {
			answer.Body.Close()
		}
		cancel()
	}
	u.stop()
	u.work.wait()
}

// readEvents calls use with the data of every server-sent event, and notes in at where the stream goes on. The id of
// an event counts once the event is there in whole: one that is cut off is sent again. What in has taken is released
// after every event, and after what only keeps the stream open.
func readEvents(in *shares.Reader, at *position, use func([]byte) error) error {
	b := bufio.NewReaderSize(in, 64<<10)
	var data []byte
	has, event := false, at.event
	for {
		line, err := readBounded(b, mcp.MaxMessage-len(data))
		if err != nil {
			return err
		}
		if len(line) == 0 {
			at.event = event
			if len(data) > 0 { // an event without data only says where the stream goes on
				if err := use(data); err != nil {
					return err
				}
			}
			data, has = nil, false
			in.Release()
			continue
		}
		name, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "" && !has: // a comment between events
			in.Release()
		case name == "id" && isEventID(value):
			event = value
		case name == "retry":
			at.wait(value)
		case name == "data":
			if has {
				data = append(data, '\n')
			}
			data, has = append(data, value...), true
		}
	}
}

func isEventID(value string) bool {
	return len(value) <= maxEventID && !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' })
}

// wait takes in the pause that a server asks for, in milliseconds.
func (p *position) wait(value string) {
	if ms, err := strconv.ParseUint(value, 10, 32); err == nil {
		p.pause = min(max(time.Duration(ms)*time.Millisecond, minResume), maxResume)
	}
}

// readBounded reads a line without its end.
func readBounded(b *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, errors.New("an event is too long")
		}
		line = append(line, part...)
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}
