package run

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/cloudevents"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/streams"
)

func TestPublishCloudEventsOfAFile(t *testing.T) {
	const data = `{"event_type":"PostToolUse", "session_id":"s1", "n": 1.0}`
	c := PublishCmd{Protocol: "agenthook", CloudEvents: true, File: "events.jsonl"}
	msgs, err := c.messages("acme", "rt1", [][]byte{[]byte(`{"specversion":"1.0","id":"e1","source":"/a","type":"x","tenant":"t","data":` + data + `}`)})
	if err != nil || len(msgs) != 1 {
		t.Fatal(msgs, err)
	}
	e, err := cloudevents.Decode(msgs[0].Header, msgs[0].Body)
	if err != nil || e.Mode != cloudevents.ModeBinary || e.Type != "x" || e.Extra["tenant"] != "t" || !bytes.Equal(e.Data, []byte(data)) ||
		msgs[0].Subject != "gov.events.acme.rt1.agenthook.s1.PostToolUse" {
		t.Errorf("%s %+v %v", msgs[0].Subject, e, err)
	}
	for name, line := range map[string]string{
		"no CloudEvent":     `{"event_type":"hunter2-secret"}`,
		"no JSON":           `{"specversion":"1.0","id":"hunter2-secret"`,
		"a time of no kind": `{"specversion":"1.0","id":"e1","source":"/a","type":"x","time":"hunter2-secret","data":{}}`,
		"without a type":    `{"specversion":"1.0","id":"e1","source":"/a","note":"hunter2-secret","data":{}}`,
	} {
		if _, err := c.messages("acme", "rt1", [][]byte{[]byte(line)}); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is stored and is no event of the protocol is counted on stderr.
func TestPublishCountsInvalidEvents(t *testing.T) {
	valid, err := os.ReadFile("../../../examples/requests/pre-tool-use.json")
	if err != nil {
		t.Fatal(err)
	}
	msgs := func(bodies ...string) (list []streams.Msg) {
		for _, b := range bodies {
			list = append(list, streams.Msg{Body: []byte(b)})
		}
		return list
	}
	for _, c := range []struct {
		protocol string
		msgs     []streams.Msg
		want     string
	}{
		{"agenthook", msgs(string(valid)), ""},
		{"agenthook", msgs(string(valid), "# prose", "{}"), "2 of 3 are no valid agenthook events (number 2: not_json"},
		{"nonsense", msgs("# prose"), ""},
	} {
		var said bytes.Buffer
		(&PublishCmd{Protocol: c.protocol}).warnOfInvalid(ui.Stdio{Err: &said}, c.msgs)
		if got := said.String(); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", c.protocol, got, c.want)
		}
	}
}
