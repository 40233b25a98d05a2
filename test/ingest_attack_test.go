package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answerTo sends an event with headers and gives the acknowledgement word for word,
// but for the sequence of what was stored.
func (r runtimeClient) answerTo(t testing.TB, headers ...string) string {
	t.Helper()
	event := hook("s-guess", "SessionStart")
	m := nats.NewMsg(event.subject(r))
	m.Data = event.bytes()
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	reply, err := r.nc.RequestMsg(m, patience)
	ok(t, err)
	return regexp.MustCompile(`"seq":[0-9]+`).ReplaceAllString(string(reply.Data), `"seq":N`)
}

// Whatever a publisher guesses about the log in a header that steers the server,
// the answer is the same if it is right and if it is wrong: of its own tenant, of
// another one, of records and of publishers.
func TestAttackGuessingByHeaders(t *testing.T) {
	t.Parallel()
	d := deploy(t, "globex")
	d.run(t, "operator", "policy", "push", policyDir(t, "tenants.yaml", tenantPolicies)).want(t, 0)
	victim := d.runtime(t, "acme")
	call := allowedCall("s-secret", "call-1")
	allowed := victim.admit(t, "agenthook", call.bytes())
	denied := victim.admit(t, "agenthook", deniedCall("s-secret", "call-2").with("tool_name", "no_such_tool").bytes())
	claimed := "victims-message-id"
	at := victim.put(t, call.subject(victim), call.bytes(), "Nats-Msg-Id", claimed)
	operator := d.connect(t, "operator")
	seq := func(n uint64) string { return strconv.FormatUint(n, 10) }
	subjects := func(tenant, session string) []string {
		return []string{"gov.decisions." + tenant + ".allow." + session, "gov.decisions." + tenant + ".*." + session, "gov.decisions." + tenant + ".>",
			"gov.events." + tenant + "." + tenant + "-runtime.agenthook." + session + ".>", "gov.control.GOV.policy"}
	}
	for _, attacker := range []runtimeClient{victim, d.runtime(t, "globex")} {
		t.Run(attacker.tenant, func(t *testing.T) {
			same := func(about string, right, wrong []string) {
				t.Helper()
				a, b := attacker.answerTo(t, right...), attacker.answerTo(t, wrong...)
				if a != b {
					t.Errorf("%s: the answer tells:\n%s\n%s", about, a, b)
				}
				if !strings.Contains(a, `"code":400`) {
					t.Errorf("%s: %s", about, a)
				}
			}
			const far = "99999999999"
			missing := subjects("nobody", "s-nothing")
			for i, subject := range subjects("acme", "s-secret") {
				for _, guess := range []string{"0", far, seq(allowed.seq), seq(denied.seq), seq(at)} {
					same(subject, []string{"Nats-Expected-Last-Subject-Sequence", guess, "Nats-Expected-Last-Subject-Sequence-Subject", subject},
						[]string{"Nats-Expected-Last-Subject-Sequence", far, "Nats-Expected-Last-Subject-Sequence-Subject", missing[i]})
				}
			}
			for name, guesses := range map[string][2]string{
				"Nats-Expected-Last-Sequence": {seq(lastSeq(t, operator)), far}, "Nats-Expected-Last-Subject-Sequence": {seq(at), far},
				"Nats-Expected-Last-Msg-Id": {claimed, "never-seen"}, "Nats-Expected-Stream": {"GOV_QUARANTINE", "NEVER_SEEN"},
				"Nats-Batch-Id": {"held", "never-seen"}, "Nats-Rollup": {"sub", "all"}, "Nats-TTL": {"1s", "never"}, "Nats-Incr": {"1", "x"},
				"Nats-Schedule": {"@at 2030-01-01T00:00:00Z", "never"}, "Nats-Schedule-Target": {"gov.decisions.acme.allow.s-secret", "nowhere"},
				"Nats-Schedule-Source": {"gov.decisions.acme.allow.s-secret", "nowhere"}, "Nats-Scheduler": {"gov.decisions.acme.allow.s-secret", "nowhere"},
				"Nats-Required-Api-Level": {"0", "99"}, "Nats-Marker-Reason": {"MaxAge", "never"}, "Nats-Pin-Id": {"a", "b"},
			} {
				for _, spelling := range []string{name, strings.ToLower(name)} {
					known, unknown := attacker.answerTo(t, spelling, guesses[0]), attacker.answerTo(t, spelling, guesses[1])
					if known != unknown || !strings.Contains(known, `"code":400`) {
						t.Errorf("%s:\n%s\n%s", spelling, known, unknown)
					}
				}
			}
			// An id that is taken changes nothing for the next one.
			if a, b := attacker.answerTo(t, "Nats-Msg-Id", claimed), attacker.answerTo(t, "Nats-Msg-Id", "never-seen"); a != b || strings.Contains(a, "duplicate") {
				t.Errorf("%s\n%s", a, b)
			}
			// JetStream itself does not answer a tenant.
			for _, subject := range []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.GOV", "$JS.API.STREAM.MSG.GET.GOV", "gov.ingest.acme.acme-runtime.agenthook.s.x"} {
				if reply, err := attacker.nc.Request(subject, []byte(`{"seq":1}`), 300*time.Millisecond); err == nil {
					t.Errorf("%s answers %s", subject, reply.Data)
				}
			}
		})
	}
}

// An answer aimed by its reply subject at what others listen to is delivered to
// none of them: outputs and inboxes, of the own tenant and of another one, from
// every service that answers a tenant.
func TestAttackAnswersAtListeners(t *testing.T) {
	t.Parallel()
	d := deploy(t, "globex")
	d.run(t, "operator", "policy", "push", policyDir(t, "tenants.yaml", tenantPolicies)).want(t, 0)
	const forged = "s-forged-output"
	type listener struct {
		nc       *nats.Conn
		messages chan *nats.Msg
	}
	victims := map[string]listener{}
	for _, tenant := range []string{"acme", "globex"} {
		for role, classes := range map[string][]string{"subscriber": {"decisions", "calls", "findings", "approvals"}, "reviewer": {"approvals", "decisions"}, "runtime": nil} {
			user := tenant + "-" + role
			l := listener{d.connect(t, user), make(chan *nats.Msg, 4096)}
			subjects := []string{"_INBOX_" + user + ".>"}
			for _, c := range classes {
				subjects = append(subjects, "gov."+c+"."+tenant+".>")
			}
			for _, s := range subjects {
				_, err := l.nc.ChanSubscribe(s, l.messages)
				ok(t, err)
			}
			ok(t, l.nc.Flush())
			victims[user] = l
		}
	}
	// Every target names the attacker, because an answer may come late.
	targets := func(attacker string) (list []string) {
		mark := forged + "-" + attacker
		for _, tenant := range []string{"acme", "globex"} {
			list = append(list, "gov.findings."+tenant+".critical."+mark, "gov.decisions."+tenant+".allow."+mark, "gov.approvals."+tenant+".approved."+mark,
				"gov.calls."+tenant+".completed."+mark)
			for _, role := range []string{"subscriber", "reviewer", "runtime"} {
				list = append(list, "_INBOX_"+tenant+"-"+role+"."+mark)
			}
		}
		return list
	}
	for _, tenant := range []string{"acme", "globex"} {
		runtime := d.runtime(t, tenant)
		event := hook("s-aimed", "SessionStart")
		for _, attack := range []struct {
			user, via string
			body      []byte
		}{
			{tenant + "-runtime", "gov.admit." + tenant + ".agenthook", allowedCall("s-aimed", "call-1").bytes()}, {tenant + "-runtime", event.subject(runtime), event.bytes()},
			{tenant + "-subscriber", "gov.follow." + tenant, []byte(`{}`)}, {tenant + "-reviewer", "gov.resolve." + tenant, []byte(`{"action":"list"}`)},
		} {
			nc := d.connect(t, attack.user)
			for _, target := range targets(attack.user) {
				ok(t, nc.PublishRequest(attack.via, target, attack.body))
			}
			_, err := nc.Request(attack.via, attack.body, patience) // the answers before this one had their time
			ok(t, err)
			for user, l := range victims {
				ok(t, l.nc.Flush())
				for len(l.messages) > 0 {
					m := <-l.messages
					// A user hears its own answers.
					if strings.Contains(m.Subject, forged) && !strings.HasSuffix(m.Subject, forged+"-"+user) {
						t.Errorf("%s by %s: %s heard %s", attack.user, attack.via, user, m.Subject)
					}
				}
			}
		}
	}
	operator := d.connect(t, "operator")
	for seq := uint64(1); seq <= lastSeq(t, operator); seq++ {
		m, err := message(operator, "GOV", object{"seq": seq})
		ok(t, err)
		if strings.Contains(m.Subject, forged) {
			t.Errorf("%s is on the log", m.Subject)
		}
	}
}

// One connection publishes without waiting, over 16 sessions, while the admitter
// that takes events in is killed and the other one goes on: nothing that was
// acknowledged is lost, nothing is there twice, and what was acknowledged stands in
// the order in which it was sent.
func TestEventOrderAcrossFailover(t *testing.T) {
	t.Parallel()
	d := deploy(t, "globex")
	second := serve(t, "admitter", t.TempDir()+"/second.log", "COUNTERSIGN_NATS_URL="+d.url, "COUNTERSIGN_NATS_PASSWORD="+passwordOf("admitter"), "COUNTERSIGN_KEYS="+d.keys)
	t.Cleanup(func() { second.signal(syscall.SIGTERM); ok(t, second.wait()) })
	r := d.runtime(t, "acme")
	js, err := jetstream.New(r.nc, jetstream.WithPublishAsyncMaxPending(1000), jetstream.WithPublishAsyncTimeout(5*time.Second))
	ok(t, err)
	const count, kill, resume = 9000, 3000, 6000
	futures := make([]jetstream.PubAckFuture, count)
	for i := range count {
		switch i {
		case kill: // with up to 1,000 on their way
			d.services["admitter"].signal(syscall.SIGKILL)
		case resume:
			eventually(t, "the other admitter takes events in", func() error {
				_, err := r.nc.Request(r.subject("agenthook", "s-look", "SessionStart"), []byte(`"look"`), time.Second)
				return err
			})
		}
		for {
			// The client's own retries would change the order.
			futures[i], err = js.PublishAsync(r.subject("agenthook", fmt.Sprint("s-", i%16), "SessionStart"), []byte(fmt.Sprint(i)), jetstream.WithRetryAttempts(0))
			if !errors.Is(err, jetstream.ErrTooManyStalledMsgs) {
				break
			}
		}
		ok(t, err)
	}
	acked, last := map[string]uint64{}, uint64(0)
	for i, f := range futures {
		select {
		case a := <-f.Ok():
			if a.Sequence <= last {
				t.Fatalf("event %d is acknowledged at %d, after %d", i, a.Sequence, last)
			}
			last, acked[fmt.Sprint(i)] = a.Sequence, a.Sequence
		case <-f.Err(): //nolint:errcheck // a refusal is an outcome, whatever it says
		case <-time.After(patience):
			t.Fatalf("event %d has no outcome", i)
		}
	}
	t.Logf("%d of %d acknowledged", len(acked), count)
	if len(acked) < count-resume+kill/2 || acked[fmt.Sprint(count-1)] == 0 {
		t.Errorf("%d of %d acknowledged", len(acked), count)
	}
	seen := map[string]bool{}
	operator := d.connect(t, "operator")
	for seq := uint64(1); seq <= lastSeq(t, operator); seq++ {
		m, err := message(operator, "GOV", object{"seq": seq})
		ok(t, err)
		if !strings.Contains(m.Subject, ".SessionStart") || !json.Valid(m.Data) || m.Data[0] == '"' {
			continue
		}
		id := string(m.Data)
		if seen[id] {
			t.Errorf("event %s is there twice", id)
		}
		if at := acked[id]; at != 0 && at != seq {
			t.Errorf("event %s is at %d, acknowledged at %d", id, seq, at)
		}
		seen[id] = true
		delete(acked, id)
	}
	if len(acked) > 0 {
		t.Errorf("%d acknowledged events are not on the log", len(acked))
	}
}
