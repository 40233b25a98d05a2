package e2e_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// connect connects in a role of the ready file, as a plain client would.
func (s *system) connect(t testing.TB, roleName string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	r := s.info(t)
	c, there := r.Roles[roleName]
	if !there {
		t.Fatalf("the ready file has no role %s", roleName)
	}
	return dial(t, r.NATSURL, c, opts...)
}

// service connects as one of the pipeline's own users, whose passwords are in the data directory
// only.
func (s *system) service(t testing.TB, name string) *nats.Conn {
	t.Helper()
	return dial(t, s.info(t).NATSURL, role{User: name, Password: s.password(t, name), InboxPrefix: "_INBOX_" + name})
}

func (s *system) password(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.data, "state.json"))
	ok(t, err)
	var st struct{ Passwords map[string]string }
	ok(t, json.Unmarshal(b, &st))
	if st.Passwords[name] == "" {
		t.Fatalf("state.json has no password of %s", name)
	}
	return st.Passwords[name]
}

func dial(t testing.TB, url string, c role, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.UserInfo(c.User, c.Password), nats.CustomInboxPrefix(c.InboxPrefix), nats.Name("e2e"), nats.Timeout(patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // tests that expect permission errors read them themselves
	}, opts...)...)
	ok(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// runtimeClient is an agent runtime: a connection and its publisher token.
type runtimeClient struct {
	nc        *nats.Conn
	tenant    string
	publisher string
}

func (s *system) runtime(t testing.TB, opts ...nats.Option) runtimeClient {
	t.Helper()
	r := s.info(t)
	return runtimeClient{s.connect(t, "runtime", opts...), r.Tenant, r.Roles["runtime"].Publisher}
}

// answer is the decoded reply to an admission request.
type answer struct {
	msg     *nats.Msg
	verdict string
	id      string
	receipt string
	seq     uint64
	body    object
}

// admit sends an admission request. headers are name, value, name, value, ...
func (r runtimeClient) admit(t testing.TB, protocol string, body []byte, headers ...string) answer {
	t.Helper()
	a, err := r.ask(protocol, body, headers...)
	ok(t, err)
	return a
}

// ask is admit without the requirement that it succeeds.
func (r runtimeClient) ask(protocol string, body []byte, headers ...string) (answer, error) {
	m := nats.NewMsg("gov.admit." + r.tenant + "." + protocol)
	m.Data = body
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	reply, err := r.nc.RequestMsg(m, patience)
	if err != nil {
		return answer{}, fmt.Errorf("asking on %s: %w", m.Subject, err)
	}
	a := answer{msg: reply, verdict: reply.Header.Get("Countersign-Verdict"), id: reply.Header.Get("Countersign-Decision-Id"),
		receipt: reply.Header.Get("Countersign-Receipt")}
	a.seq, _ = strconv.ParseUint(reply.Header.Get("Countersign-Decision-Seq"), 10, 64)
	return a, json.Unmarshal(reply.Data, &a.body)
}

// subject is the subject on which the runtime publishes an event.
func (r runtimeClient) subject(protocol, session, typ string) string {
	return "gov.events." + r.tenant + "." + r.publisher + "." + protocol + "." + token(session) + "." + typ
}

// token encodes a subject token (docs/architecture.md, Subjects).
func token(v string) string {
	if v == "" {
		return "~"
	}
	for _, c := range []byte(v) {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "~" + base64.RawURLEncoding.EncodeToString([]byte(v))
		}
	}
	return v
}

// put publishes bytes on a subject and returns their sequence in the log.
func (r runtimeClient) put(t testing.TB, subject string, body []byte, headers ...string) uint64 {
	t.Helper()
	m := nats.NewMsg(subject)
	m.Data = body
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	// While no ingest service is active, a publisher gets "no responders" and retries.
	var seq uint64
	eventually(t, "an admitter takes the event in", func() (err error) {
		if seq, err = r.store(m); err != nil && !errors.Is(err, nats.ErrNoResponders) {
			t.Fatal(err)
		}
		return err
	})
	return seq
}

// store publishes a message durably.
func (r runtimeClient) store(m *nats.Msg) (uint64, error) {
	reply, err := r.nc.RequestMsg(m, patience)
	if err != nil {
		return 0, fmt.Errorf("publishing on %s: %w", m.Subject, err)
	}
	if seq := ackSeq(reply); seq > 0 {
		return seq, nil
	}
	return 0, fmt.Errorf("publishing on %s: %s", m.Subject, reply.Data)
}

// ackSeq is the sequence in a publish acknowledgement, 0 for any other reply.
func ackSeq(reply *nats.Msg) uint64 {
	var ack struct {
		Seq   uint64
		Error json.RawMessage
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil || ack.Error != nil {
		return 0
	}
	return ack.Seq
}

// publish publishes an event on its subject and returns its sequence.
func (r runtimeClient) publish(t testing.TB, e object) uint64 {
	t.Helper()
	return r.put(t, e.subject(r), e.bytes())
}

// api sends a request to JetStream's API, as a plain NATS client would.
func api(nc *nats.Conn, subject string, request, into any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, err := nc.Request("$JS.API."+subject, body, patience)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	var failed struct {
		Error *struct {
			Description string `json:"description"`
			ErrCode     int    `json:"err_code"`
		}
	}
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return err
	}
	if failed.Error != nil {
		return errors.New(failed.Error.Description)
	}
	return json.Unmarshal(reply.Data, into)
}

// lastSeq is the sequence of the log's last message.
func lastSeq(t testing.TB, operator *nats.Conn) uint64 {
	t.Helper()
	var info struct {
		State struct {
			LastSeq uint64 `json:"last_seq"`
		}
	}
	ok(t, api(operator, "STREAM.INFO.GOV", struct{}{}, &info))
	return info.State.LastSeq
}

// stored is a message in a stream.
type stored struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// message reads one message of a stream.
func message(nc *nats.Conn, stream string, request object) (stored, error) {
	var got struct{ Message stored }
	return got.Message, api(nc, "STREAM.MSG.GET."+stream, request, &got)
}
