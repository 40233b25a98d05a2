package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/streams"
)

// classFacts are the kind of a class and the type of its bodies.
var classFacts = map[subject.Class]struct{ kind, body string }{
	subject.Admit:       {"request-reply", "the request in its protocol's own JSON; so is the reply"},
	subject.Ingest:      {"request-reply", "the publisher's event, on its way to the log: the server makes this subject of `gov.events.…`, which the publisher uses"},
	subject.Events:      {"log", "the publisher's event, byte for byte; of type `request` the admitter's copy of a request"},
	subject.Decisions:   {"log", "`events.Decision`; the verdict is"},
	subject.Calls:       {"log", "`events.Call`; the state is"},
	subject.Findings:    {"log", "`events.Finding`; the state is the severity,"},
	subject.Approvals:   {"log", "`events.Approval`; the state is the status"},
	subject.Control:     {"log", "by kind, see [below](#control-records)"},
	subject.Resolve:     {"request-reply", "`approval.Request`; the reply is `approval.Reply`"},
	subject.Follow:      {"request-reply", "`events.FollowRequest`; the reply is `events.FollowPage`"},
	subject.Tokens:      {"request-reply", "`token.ViewRequest`; the reply is `token.ViewReply`"},
	subject.Mandates:    {"request-reply", "`aump.PrincipalRequest`; the reply is `aump.PrincipalReply`"},
	subject.Quarantine:  {"stream " + streams.StreamQuarantine, "bytes that could not be parsed or redacted"},
	subject.Checkpoints: {"stream " + streams.StreamCheckpoints, "a checkpoint: a signed note"},
}

// vocabularies are the labels of metrics with values that a class has in its subjects.
var vocabularies = map[subject.Class]string{subject.Decisions: "verdict", subject.Calls: "state", subject.Findings: "severity"}

// labelValues are the values of a label of the metrics.
func labelValues(name string) []string {
	for _, f := range metrics.Families() {
		for _, l := range f.Labels {
			if l.Name == name && l.Values != nil {
				return l.Values
			}
		}
	}
	return nil
}

func subjects(root string, p *text) error {
	p.line("The prefix `gov` is configurable. A token that is not `[A-Za-z0-9_-]+` is written `~` and its base64url, unpadded; one that would be longer than 64")
	p.line("bytes `~h` and its SHA-256 in hex; an absent value `~`. A tenant's role uses the subjects of its own tenant alone, a runtime those of its own user.\n")
	var rows [][]string
	for _, c := range subject.Classes {
		facts, known := classFacts[c]
		if !known {
			return fmt.Errorf("say what kind of subject %s is and what its body is (tools/docgen/reference/subjects.go)", c)
		}
		body := facts.body
		if label, has := vocabularies[c]; has {
			body += " one of " + quoted(labelValues(label)...)
		}
		rows = append(rows, []string{quoted(subject.Pattern(c)), facts.kind, rolesWith(c, publishes), rolesWith(c, subscribes), rolesWith(c, readsStream), body})
	}
	p.table([]string{"subject", "kind", "may publish", "may subscribe", "may read the stream", "body"}, rows)
	p.line("A runtime may publish no event of type `request`. The custodian publishes control records of the kinds `erasure`, `expiry` and `retention` alone. The witness publishes on none of these subjects: its signatures go into the bucket `witnesses`.\n")
	if err := controlKinds(root, p); err != nil {
		return err
	}
	return permissions(p)
}

func publishes(c subject.Class, p streams.Permissions) bool {
	return names(p.Publish, "{p}."+string(c)+".")
}
func subscribes(c subject.Class, p streams.Permissions) bool {
	return names(p.Subscribe, "{p}."+string(c)+".")
}

// readsStream reports whether a role may get messages from the stream that holds a class.
func readsStream(c subject.Class, p streams.Permissions) bool {
	stream := map[subject.Class]string{subject.Quarantine: streams.StreamQuarantine, subject.Checkpoints: streams.StreamCheckpoints}[c]
	if slices.Contains(subject.LogClasses, c) {
		stream = "{shard}"
	}
	return stream != "" && slices.Contains(p.Publish, "$JS.API.STREAM.MSG.GET."+stream)
}

func names(list []string, prefix string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.HasPrefix(s, prefix) })
}

func rolesWith(c subject.Class, may func(subject.Class, streams.Permissions) bool) string {
	var list []string
	for _, r := range streams.Roles {
		if may(c, streams.PermissionsOf(r)) {
			list = append(list, string(r))
		}
	}
	return strings.Join(list, ", ")
}

// controlKinds lists the kinds of control records, with the type beside each constant.
func controlKinds(root string, p *text) error {
	found, err := constantsOf(root, "events", "Control")
	if err != nil {
		return err
	}
	var rows [][]string
	for _, c := range found {
		rows = append(rows, []string{quoted(c.value), quoted(c.text)})
	}
	p.line("## Control records\n")
	p.table([]string{"kind", "body"}, rows)
	return nil
}

// permissions lists all that each role may publish and subscribe, other subjects included.
func permissions(p *text) error {
	p.line("## Permissions\n\n`{p}` is the subject prefix, `{t}` the tenant, `{u}` the user, `{inbox}` the user's inbox prefix, `{shard}` the log's stream. What is not listed is denied.\n")
	for _, r := range streams.Roles {
		may := streams.PermissionsOf(r)
		p.line("### %s\n", r)
		var rows [][]string
		for _, list := range []struct {
			what     string
			subjects []string
		}{{"publish", may.Publish}, {"never publish", may.DenyPublish}, {"subscribe", may.Subscribe}} {
			if len(list.subjects) > 0 {
				rows = append(rows, []string{list.what, quoted(list.subjects...)})
			}
		}
		p.table([]string{"may", "subjects"}, rows)
		if may.Connections > 0 {
			p.line("At most %d connections, with %d subscriptions each; the server refuses more.\n", may.Connections, may.Subscriptions)
		}
	}
	return nil
}
