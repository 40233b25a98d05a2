package call

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/schemas"
)

func TestSayOnlyTightens(t *testing.T) {
	o := Opinion{Verdict: events.Allow}
	for _, step := range []struct {
		verdict, want events.Verdict
		because       string
	}{
		{events.Allow, events.Allow, ""}, {events.Ask, events.Ask, "c1"}, {events.Allow, events.Ask, "c1"},
		{events.Deny, events.Deny, "c3"}, {events.Defer, events.Deny, "c3"}, {events.Deny, events.Deny, "c3"},
	} {
		o.AddReason(step.verdict, "e", fmt.Sprintf("c%d", len(o.Reasons)), "")
		if o.Verdict != step.want || o.DecidingCode != step.because {
			t.Errorf("after %s: %s because %s", step.verdict, o.Verdict, o.DecidingCode)
		}
	}
	if len(o.Reasons) != 6 || o.Malformed {
		t.Errorf("%+v", o)
	}
}

func TestLongPathsAreCut(t *testing.T) {
	var o Opinion
	name := strings.Repeat("é", 40)
	o.Refuse("e", "c", strings.Repeat("/"+name, 5))
	if p := o.Reasons[0].Path; p != strings.Repeat("/"+name, 3) {
		t.Errorf("%d bytes, %q: a name is cut", len(p), p)
	}
	if !o.Malformed || o.Verdict != events.Deny {
		t.Errorf("%+v", o)
	}
}

func TestUndecodable(t *testing.T) {
	var o Opinion
	o.RefuseUndecodable("e", &strictjson.Error{Code: strictjson.TooDeep, Path: "/x"})
	o.RefuseUndecodable("e", &aaep.FieldError{Path: "/a"})
	o.RefuseUndecodable("e", &agenthook.FieldError{Path: "/b"})
	o.RefuseUndecodable("e", errors.New("?"))
	if got := fmt.Sprint(o.Reasons); got != "[{e too_deep /x   } {e schema_invalid /a   } {e schema_invalid /b   } {e schema_invalid    }]" {
		t.Error(got)
	}
}

func TestInvalid(t *testing.T) {
	var o Opinion
	vs := []schemas.Violation{
		{Path: "/a", Keyword: "type", Level: schemas.LevelError}, {Path: "/a", Keyword: "enum", Level: schemas.LevelError},
		{Path: "/b", Keyword: "advice", Level: schemas.LevelWarning}, {Path: "/c", Keyword: "special", Level: schemas.LevelError},
		{Path: "/d", Keyword: "x", Check: "C-1", Level: schemas.LevelError},
	}
	o.RefuseViolations("e", vs, map[string]string{"special": "s", "C-1": "c1"})
	if got := fmt.Sprint(o.Reasons); got != "[{e s /c   } {e c1 /d   } {e schema_invalid /a   }]" {
		t.Error(got)
	}
	if len(vs) != 5 || vs[2].Keyword != "advice" {
		t.Error("the violations were changed")
	}
	o = Opinion{Verdict: events.Allow}
	if o.RefuseViolations("e", vs[2:3], nil); o.Verdict != events.Allow || o.Malformed {
		t.Error("a warning refuses")
	}
	vs = nil
	for i := range 100 {
		vs = append(vs, schemas.Violation{Path: fmt.Sprint("/", i), Level: schemas.LevelError})
	}
	if o.RefuseViolations("e", vs, nil); len(o.Reasons) != maxReported {
		t.Errorf("%d reasons", len(o.Reasons))
	}
}

func TestBound(t *testing.T) {
	a, b, c := strings.Repeat("x", MaxField), strings.Repeat("x", MaxField+1), strings.Repeat("y", MaxField+1)
	o := Opinion{Verdict: events.Allow}
	o.RefuseLongFields("e", map[string]*string{"/c": &c, "/a": &a, "/b": &b})
	if a == "" || b != "" || c != "" || fmt.Sprint(o.Reasons) != "[{e field_too_long /b   } {e field_too_long /c   }]" {
		t.Errorf("%v", o.Reasons)
	}
}

func TestTraceOf(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct{ in, want string }{
		{good, good}, {"", ""}, {strings.ToUpper(good), ""}, {good + "0", ""}, {strings.Replace(good, "00-", "01-", 1), ""},
		{strings.Replace(good, "-01", "_01", 1), ""}, {"00-" + strings.Repeat("0", 32) + "-b7ad6b7169203331-01", ""},
		{"00-0af7651916cd43dd8448eb211c80319c-" + strings.Repeat("0", 16) + "-01", ""},
	} {
		if got := FirstTraceparent(Request{}, c.in); got != c.want {
			t.Errorf("%q: %q", c.in, got)
		}
	}
	other := strings.Replace(good, "01", "00", 1)
	if got := FirstTraceparent(Request{Header: map[string][]string{events.HeaderTrace: {"junk", good}}}, other); got != good {
		t.Error(got)
	}
}

func TestNoConfirmations(t *testing.T) {
	if (NoConfirmations{}).Confirmation(Invocation{Irreversible: true}) != (Confirmation{}) {
		t.Error("it knows of one")
	}
	for i, grave := range map[Invocation]bool{{}: false, {Risk: "medium"}: false, {Risk: "high"}: true, {Irreversible: true}: true} {
		if i.NeedsConfirmation() != grave {
			t.Errorf("%+v", i)
		}
	}
}

// What no approval lifts, and what asks, is kept through every way in which
// opinions are put together.
func TestUnapprovable(t *testing.T) {
	deferred := Opinion{Verdict: events.Allow}
	deferred.AddReason(events.Ask, "e", "look", "")
	deferred.AddReason(events.Defer, "e", "later", "")
	firm := Opinion{Verdict: events.Ask, Unapprovable: events.Ask, AskCodes: []string{"look"}}
	for name, put := range map[string]func(o *Opinion, of Opinion){
		"Join":  func(o *Opinion, of Opinion) { o.Merge(of) },
		"Adopt": func(o *Opinion, of Opinion) { o.MergeCarried(of, "/metadata/aana") },
	} {
		for _, of := range []Opinion{deferred, firm} {
			o := Opinion{Verdict: events.Allow}
			o.AddReason(events.Ask, "own", "mine", "")
			if put(&o, of); o.Unapprovable != of.Unapprovable || fmt.Sprint(o.AskCodes) != "[mine look]" {
				t.Errorf("%s: %+v of %+v", name, o, of)
			}
		}
	}
	asked := Opinion{Verdict: events.Allow}
	if asked.AddReason(events.Ask, "e", "look", ""); asked.Unapprovable != "" {
		t.Errorf("an ask can be approved: %+v", asked)
	}
}
