package format_test

import (
	"slices"
	"testing"

	"github.com/countersign-dev/countersign/compliance/format"
	"github.com/countersign-dev/countersign/events"
)

// ocsfClass is what OCSF 1.6.0 says of a class that is written: its required
// attributes beside those of every event, and the captions of its identifiers.
type ocsfClass struct {
	category float64
	required []string
	statuses map[float64]string
}

var ocsfClasses = map[float64]ocsfClass{
	6003: {6, []string{"actor", "api", "src_endpoint"}, map[float64]string{0: "Unknown", 1: "Success", 2: "Failure"}},
	2004: {2, []string{"finding_info"}, map[float64]string{1: "New", 2: "In Progress", 3: "Suppressed", 4: "Resolved"}},
}

// dispositions are those of the dictionary of OCSF 1.6.0 by their captions.
var dispositions = map[float64]string{1: "Allowed", 2: "Blocked", 14: "Delayed", 23: "Challenge"}

// The lines say what the numbers of OCSF say, which our own schema cannot know: a
// sum over others, and captions.
func TestOCSFIdentifiers(t *testing.T) {
	lines, _ := written(t, format.OCSF, everything(t), keeps("hashes"))
	seen := map[float64]bool{}
	for _, line := range lines {
		e := loose(t, line).(map[string]any)
		num := func(key string) float64 {
			n, isNumber := e[key].(float64)
			if !isNumber {
				t.Errorf("%s has no number %s", line, key)
			}
			return n
		}
		class, known := ocsfClasses[num("class_uid")]
		if !known {
			t.Errorf("%s: a class that is not written", line)
			continue
		}
		uid, activity := num("class_uid"), num("activity_id")
		seen[uid*100+activity] = true
		if num("category_uid") != class.category || num("type_uid") != uid*100+activity {
			t.Errorf("%s: category or type do not fit", line)
		}
		for _, key := range append([]string{"metadata", "time", "severity_id"}, class.required...) {
			if _, has := e[key]; !has {
				t.Errorf("%s has no %s", line, key)
			}
		}
		if ms := num("time"); ms < 1.7e12 || ms > 2e12 {
			t.Errorf("%s: the time is not in milliseconds", line)
		}
		if s := num("severity_id"); s < 1 || s > 5 {
			t.Errorf("%s: severity %v", line, s)
		}
		checkCaptions(t, line, class)
		if actor, _ := e["actor"].(map[string]any); uid == 6003 {
			if _, has := actor["session"]; !has {
				t.Errorf("%s: the actor has no session", line)
			}
		}
	}
	for _, want := range []float64{600399, 200401} {
		if !seen[want] {
			t.Errorf("no line of type %v to look at", want)
		}
	}
}

// A call has a record for each thing that changed what is known of it, also within a state: a reader that keeps
// one event of an identifier would keep the first, and lose the correction.
func TestOCSFUidsAreUnique(t *testing.T) {
	w := newWorld(t)
	d := w.decided("s", hookRequest("h"), events.Decision{Protocol: "agenthook", Verdict: events.Allow, Tool: "send_email", ToolCallID: "h"})
	w.call(d, events.CallCompleted)
	w.call(d, events.CallCompleted)
	seen := map[any]bool{}
	lines, _ := written(t, format.OCSF, w.items, nil)
	for _, line := range lines {
		uid := loose(t, line).(map[string]any)["metadata"].(map[string]any)["uid"]
		if uid == nil || seen[uid] {
			t.Errorf("metadata.uid %v is there twice, or missing", uid)
		}
		seen[uid] = true
	}
}

// checkCaptions compares identifiers with the texts beside them: of 99, other, the
// text is the source's own.
func checkCaptions(t *testing.T, line []byte, class ocsfClass) {
	t.Helper()
	e := loose(t, line).(map[string]any)
	for _, c := range []struct {
		id, text string
		captions map[float64]string
	}{{"status_id", "status", class.statuses}, {"disposition_id", "disposition", dispositions}} {
		id, has := e[c.id].(float64)
		text, _ := e[c.text].(string)
		switch want, known := c.captions[id]; {
		case !has:
		case known && text != want, !known && (id != 99 || text == "" || slices.Contains([]string{"Other", "Unknown"}, text)):
			t.Errorf("%s: %s %v is %q", line, c.id, id, text)
		}
	}
}
