package admitter

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const toolsName = "tools.desk"

// tools is a catalogue of one tool, the one that the sample request runs.
func tools(alias, requires string) []byte {
	return []byte(`{"schema":"https://schemas.countersign.dev/countersign/tool-catalogue/v1","name":"desk",` +
		`"tools":[{"name":"email.send_message","aliases":["` + alias + `"],"requires":[` + requires + `]}]}`)
}

func declare(tb testing.TB, n *servicetest.NATS, key string, value []byte) {
	tb.Helper()
	_, err := bucket(tb, n, "operator", streams.BucketPublishers).Put(tb.Context(), key, value)
	servicetest.OK(tb, err)
}

// What is declared decides as soon as it is put, and its record stands in the log
// before its first decision.
func TestPublishersAreFollowed(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	put(t, n, "allow.yaml", []byte("apiVersion: countersign.dev/v1\nkind: AdmissionPolicy\nmetadata:\n  name: all\nspec:\n  rules:\n"+
		"    - name: r\n      when: 'true'\n      verdict: allow\n      reason: ok\n"))
	serve(t, n)
	nc := n.Conn(servicetest.Runtime)
	body := file(t, "requests/pre-tool-use.json")
	tool := strings.SplitN(strings.SplitN(string(body), `"tool_name"`, 2)[1], `"`, 3)[1]
	reason := func() string { return readNative(t, ask(t, nc, "gov.admit.acme.agenthook", body).Data).Reason }
	becomes := func(want string) {
		t.Helper()
		servicetest.Eventually(t, want, func() bool { return reason() == want })
	}
	becomes("allowed_by_policy")
	key := publisher.Key("acme", toolsName)
	declare(t, n, key, tools(tool, `"mandate"`))
	becomes("mandate_required")
	declare(t, n, key, tools(strings.ToUpper(tool), ``))
	becomes("tool_name_case")
	declare(t, n, publisher.Key("globex", toolsName), tools(tool, `"contract"`)) // another tenant's
	declare(t, n, key, []byte("{"))
	becomes("catalogue_error")
	servicetest.OK(t, bucket(t, n, "operator", streams.BucketPublishers).Delete(t.Context(), key))
	becomes("allowed_by_policy")
	declare(t, n, "nobody", tools(tool, ``)) // a key that names no tenant
	becomes("catalogue_error")
	servicetest.OK(t, bucket(t, n, "operator", streams.BucketPublishers).Delete(t.Context(), "nobody"))
	becomes("allowed_by_policy")
	declare(t, n, key, tools(tool, ``))
	var d events.Decision
	servicetest.Eventually(t, "the decision names the catalogue", func() bool {
		reason()
		of := of(n.Log(), "gov.decisions.acme.")
		var err error
		d, err = events.DecodeRecord[events.Decision](of[len(of)-1].Body)
		servicetest.OK(t, err)
		return d.CanonicalTool == "email.send_message"
	})
	if d.Tool != tool || d.Publishers == nil || d.Publishers.Revision == 0 {
		t.Errorf("%+v", d)
	}
	recorded := map[uint64]bool{}
	var last events.PublisherChange
	for _, m := range n.Log() {
		switch {
		case m.Subject == "gov.control.GOV.publisher":
			c, err := events.DecodeRecord[events.PublisherChange](m.Body)
			servicetest.OK(t, err)
			if recorded[c.Revision] = true; c.Error != "" && !strings.Contains(c.Error, toolsName) && !strings.Contains(c.Error, "nobody") {
				t.Errorf("%+v", c)
			}
			last = c
			if strings.Contains(string(m.Body), "email.send_message") {
				t.Error("the record holds the catalogue")
			}
		case strings.HasPrefix(m.Subject, "gov.decisions.acme."):
			d, err := events.DecodeRecord[events.Decision](m.Body)
			servicetest.OK(t, err)
			if d.Publishers != nil && !recorded[d.Publishers.Revision] {
				t.Errorf("a decision by revision %d, which is not in the log yet", d.Publishers.Revision)
			}
		}
	}
	if len(recorded) < 5 || last.Error != "" || len(last.Documents) != 2 ||
		!slices.ContainsFunc(last.Documents, func(d events.PublisherDocument) bool {
			return d.Tenant == "acme" && d.Name == toolsName && d.Revision > 0
		}) {
		t.Errorf("%v %+v", recorded, last)
	}
	n.CheckLinked(events.ControlPublisher)
}

// The log's copy of a request keeps the headers that name a mandate: without them the decision
// could not be explained.
func TestMandateHeadersAreKept(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	serve(t, n)
	ask(t, n.Conn(servicetest.Runtime), "gov.admit.acme.agenthook", file(t, "requests/pre-tool-use.json"), aump.HeaderMandateID, "aump_mnd_x", "X-Other", "y")
	for _, m := range n.Log() {
		if strings.HasSuffix(m.Subject, ".request") {
			if m.HeaderValue(aump.HeaderMandateID) != "aump_mnd_x" || m.HeaderValue("X-Other") != "" {
				t.Errorf("%v", m.Header)
			}
			return
		}
	}
	t.Error("no request in the log")
}

// Documents that do not fit into one record are in several, each within what a message can hold: no
// tenant's declarations depend on how much another one declares. An error is in the parts of its tenant.
func TestChangeInParts(t *testing.T) {
	var docs []publisher.Document
	for n := range 2 * maxDocuments {
		docs = append(docs, publisher.Document{Tenant: "acme", Name: fmt.Sprintf("registration.bot%04d", n),
			Data: fmt.Appendf(nil, `{"schema":%q,"publisher":"bot%04d","gateway":"gw1"}`, publisher.RegistrationSchema, n)})
	}
	docs = append(docs, publisher.Document{Tenant: "globex", Name: toolsName, Data: []byte("{")})
	set := publisher.Compile(docs, 7)
	all := set.Documents()
	list := changeRecords(set, 7)
	var got []events.PublisherDocument
	for i, c := range list {
		body, err := events.Encode(c)
		servicetest.OK(t, err)
		if c.Part != i+1 || c.Parts != len(list) || c.Digest != set.Digest() || len(body) > 768<<10 {
			t.Errorf("part %d of %d, %d bytes", c.Part, c.Parts, len(body))
		}
		if (c.Error != "") != (i == len(list)-1) {
			t.Errorf("part %d has the error %q", c.Part, c.Error)
		}
		got = append(got, c.Documents...)
	}
	if len(list) < 3 || !reflect.DeepEqual(got, all) {
		t.Errorf("%d parts with %d documents of %d", len(list), len(got), len(all))
	}
	if one := changeRecords(publisher.Compile(nil, 8), 8); len(one) != 1 || one[0].Parts != 0 || one[0].Documents == nil {
		t.Errorf("without documents: %+v", one)
	}
}

// The declarations of one record have a bound of their own.
func TestPartsByDeclarations(t *testing.T) {
	long := &events.PublisherDeclares{Source: "s", Absent: []string{strings.Repeat("E", maxDeclared/3)}}
	tooLong := &events.PublisherDeclares{Source: "s", Absent: []string{strings.Repeat("E", maxDeclared)}}
	docs := []events.PublisherDocument{{Declares: long}, {Declares: long}, {Declares: long}, {Declares: tooLong}}
	if parts := splitDocuments(docs); len(parts) != 2 || len(parts[0]) != 2 || len(parts[1]) != 2 || parts[1][0].Declares == nil || parts[1][1].Declares != nil {
		t.Errorf("%d parts", len(parts))
	}
}

// The last declaration is removed while no admitter runs: the next one records that, once.
func TestPublishersRemovedMeanwhile(t *testing.T) {
	n := servicetest.Start(t, streams.Shard{})
	evaluators(t, n)
	declared := func() (list []int) {
		servicetest.OK(t, serve(t, n).Stop())
		for _, m := range of(n.Log(), "gov.control.GOV.publisher") {
			c, err := events.DecodeRecord[events.PublisherChange](m.Body)
			servicetest.OK(t, err)
			list = append(list, len(c.Documents))
		}
		return list
	}
	key := publisher.Key("acme", "registration.front1")
	for _, step := range []struct {
		change func()
		want   []int
	}{
		{func() {}, nil},
		{func() {
			declare(t, n, key, []byte(`{"schema": "`+publisher.RegistrationSchema+`", "publisher": "front1", "answers_confirmations": true}`))
		}, []int{1}},
		{func() {
			servicetest.OK(t, bucket(t, n, "operator", streams.BucketPublishers).Delete(t.Context(), key))
		}, []int{1, 0}},
		{func() {}, []int{1, 0}},
	} {
		step.change()
		if got := declared(); !slices.Equal(got, step.want) {
			t.Errorf("documents of the records: %v, want %v", got, step.want)
		}
	}
	n.CheckLinked(events.ControlPublisher)
}
