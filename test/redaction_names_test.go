package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plant makes credentials, each for one place where a producer chooses a name.
type plant map[string]string

func (p plant) token(place string) string {
	v := "ghp_" + strings.ReplaceAll(fmt.Sprintf("%036d", len(p)+1), "00000000", "aB3xQ7Zk")
	p[v] = place
	return v
}

// in lists the places whose credential occurs in a text.
func (p plant) in(text string) (places []string) {
	for v, place := range p {
		if strings.Contains(text, v) {
			places = append(places, place)
		}
	}
	return places
}

// dump is everything that a database holds, a text for each table.
func dump(t testing.TB, s *system) map[string]string {
	t.Helper()
	db, tables := s.owner(t), []struct {
		Name string `ch:"name"`
	}{}
	ok(t, db.Select(context.Background(), &tables, "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine NOT LIKE '%View'"))
	out := map[string]string{}
	for _, table := range tables {
		var text string
		ok(t, db.QueryRow(context.Background(), "SELECT arrayStringConcat(groupArray(toString(tuple(*))), '\n') FROM `"+table.Name+"`").Scan(&text))
		out["table "+table.Name] = text
	}
	return out
}

// A credential as a name (of a session, call, event, agent, tool, argument and so
// on), through every protocol, stands nowhere in evidence, tables, bundles, the
// commands' output, logs and metrics; and the records of one call stay together.
func TestCredentialsAsNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	r, p := s.runtime(t), plant{}
	sessions := map[string]string{}
	for _, protocol := range []string{"agenthook", "aaep", "aana", "aump", "tool", "handoff"} {
		place := func(name string) string { return p.token(protocol + " " + name) }
		session, call := place("session"), place("call")
		sessions[protocol] = session
		headers := []string{"Countersign-Session", session, "Countersign-Tool-Call-Id", call, "Countersign-Agent", place("agent header"), "Countersign-Workflow-Id", place("workflow header")}
		var body object
		switch protocol {
		case "agenthook":
			body = preToolUse(session, call, place("tool"), object{place("argument"): 1, "list": []any{object{place("inner argument"): 2}}}).
				with("event_id", place("event")).with("action", place("action")).with("resource_kind", place("resource kind")).with("source", place("source")).with("agent_id", place("agent"))
		case "aaep":
			body = invoked("sess_"+place("session id"), call, place("tool")).with("event_id", "evt_"+place("event")).with("producer", object{"agent_id": place("agent")})
		case "tool", "handoff":
			body = aiocCall(place("tool")).with("callId", call).with("agent", place("agent")).with("toAgentName", place("target")).with("handoffName", place("handoff"))
		default:
			body = object{"tool": place("tool"), "tool_call_id": call, "agent_id": place("agent"), "event_id": place("event"), "action": place("action"), place("member"): 1,
				"type": place("type"), "arguments": object{place("argument"): 1}}
		}
		r.admit(t, protocol, body.bytes(), headers...)
		doubled := place("doubled member")
		r.admit(t, protocol, []byte(`{"`+doubled+`":1,"`+doubled+`":2}`), headers...)
		if protocol == "aana" || protocol == "tool" || protocol == "handoff" {
			continue
		}
		r.put(t, r.subject(protocol, session, place("event type")), body.bytes())
		if protocol == "agenthook" {
			r.put(t, r.subject(protocol, session, "PostToolUse"), postToolUse(body).with("event_id", place("post event")).with("metadata.tool_input_executed", object{place("executed argument"): 1}).bytes())
		}
	}
	r.put(t, "gov.events."+r.tenant+"."+r.publisher+"."+p.token("foreign subject"), []byte("{}"))
	s.settle(t)
	signed(t, s)

	texts := dump(t, s)
	db := s.auditors(t)
	name := func(protocol string) (session string) {
		ok(t, db.QueryRow(context.Background(), "SELECT any(session) FROM evidence WHERE kind = 'request' AND position(subject, '."+protocol+".') > 0 AND session != '' AND tenant = 'acme' AND session NOT LIKE 'barrier%'").Scan(&session))
		return session
	}("agenthook")
	if n := number(t, db, "SELECT uniqExact(tool_call_id) FROM (SELECT tool_call_id FROM decisions WHERE session = ? AND tool != '' UNION ALL SELECT tool_call_id FROM calls WHERE session = ?)", name, name); n != 1 {
		t.Errorf("the call of session %s has %d names in decisions and calls", name, n)
	}
	file := filepath.Join(t.TempDir(), "bundle.zip")
	s.run(t, "export", "--session", name, "--out", file).want(t, 0)
	for member, text := range unpacked(t, file) {
		texts["bundle "+member] = text
	}
	for _, args := range [][]string{{"chain", "--session", name}, {"session", "--session", name}, {"findings"}, {"findings", "--json"}, {"calls"}, {"calls", "--json"}, {"verify", "--compare-log=-1"}} {
		out := s.run(t, args...)
		texts[strings.Join(args, " ")] = out.out + out.err
	}
	s.verified(t, 0, "--compare-log=-1")
	s.verified(t, 0, "--session", name)
	b, err := os.ReadFile(s.log)
	ok(t, err)
	texts["log"] = string(b)
	resp, err := http.Get(s.info(t).HTTPURL + "/metrics")
	ok(t, err)
	b, err = io.ReadAll(resp.Body)
	ok(t, err)
	_ = resp.Body.Close()
	texts["metrics"] = string(b)
	for where, text := range texts {
		if places := p.in(text); len(places) > 0 {
			t.Errorf("%s (%d bytes) holds the credentials of %q", where, len(text), places)
		}
	}
	if len(p.in(texts["table evidence"])) > 0 || len(texts["table evidence"]) < 10_000 || len(texts["table record_fields"]) < 1000 {
		t.Errorf("the tables are not what was looked at: %d, %d", len(texts["table evidence"]), len(texts["table record_fields"]))
	}

	// An erasure finds the session by its own name.
	s.run(t, "retention", "erase", "--session", sessions["agenthook"], "--reason", "request 17", "--quiet", "0s", "--yes").want(t, 0)
	eventually(t, "the session is gone", func() error {
		if files := found(t, s.data, sessions["agenthook"]); len(files) > 0 {
			return errorf("it still stands in %v", files)
		}
		return nil
	})
	if keys := sessionKeys(t, s, "acme", sessions["agenthook"]); len(keys) > 0 {
		t.Error("the session's key is still there")
	}
	s.verified(t, 0)
}
