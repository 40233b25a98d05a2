package e2e_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// named reports whether a rule is one of our own, which cover whole classes of problems. The
// single checks of a specification (AH-C-075, AAEP-C-081) may come in addition.
func named(rule string) bool {
	return !strings.HasPrefix(rule, "AH-C-") && !strings.HasPrefix(rule, "AAEP-C-")
}

// listen returns a function that returns everything a subscriber has received so far.
func listen(t testing.TB, s *system, subject string) func() []*nats.Msg {
	t.Helper()
	nc := s.connect(t, "subscriber")
	sub, err := nc.SubscribeSync(subject)
	ok(t, err)
	ok(t, nc.Flush())
	var list []*nats.Msg
	return func() []*nats.Msg {
		ok(t, nc.Flush()) // earlier messages have arrived after this
		for {
			m, err := sub.NextMsg(1)
			if err != nil {
				return list
			}
			list = append(list, m)
		}
	}
}

// expect compares a session's findings, as received and as stored, with the wanted ones.
func expect(t *testing.T, s *system, heard func() []*nats.Msg, sess string, want []string) {
	t.Helper()
	var got []string
	for _, m := range heard() {
		var f object
		ok(t, json.Unmarshal(m.Data, &f))
		if f.text("session") != sess || !named(f.text("rule")) {
			continue
		}
		got = append(got, f.text("rule")+"/"+f.text("severity"))
		if m.Subject != "gov.findings.acme."+f.text("severity")+"."+sess || m.Header.Get("ce-type") != "dev.countersign.finding.v1" ||
			m.Header.Get("ce-id") != f.text("finding_id") || f.text("explanation") == "" {
			t.Errorf("%s %v: %s", m.Subject, m.Header, m.Data)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("heard %v, want %v", got, want)
	}
	var rows []struct {
		Rule     string `ch:"rule"`
		Severity string `ch:"severity"`
	}
	ok(t, s.auditors(t).Select(context.Background(), &rows, "SELECT rule, severity FROM findings WHERE session = ? ORDER BY rule, severity", sess))
	var inTable []string
	for _, f := range rows {
		if named(f.Rule) {
			inTable = append(inTable, f.Rule+"/"+f.Severity)
		}
	}
	if !slices.Equal(inTable, want) {
		t.Errorf("the table holds %v, want %v", inTable, want)
	}
}

// published returns the producers' events on the log, by session.
func published(t testing.TB, s *system) map[string][]*nats.Msg {
	t.Helper()
	operator := s.connect(t, "operator")
	list := map[string][]*nats.Msg{}
	for _, r := range evidence(t, s.auditors(t), "kind = 'event'") {
		m, err := message(operator, "GOV", object{"seq": r.Seq})
		ok(t, err)
		list[r.Session] = append(list[r.Session], &nats.Msg{Subject: m.Subject, Data: m.Data})
	}
	return list
}
