package e2e_test

import (
	"iter"
	"strings"
)

// pageGroup is a list of pages that are typed one after the other in one folder.
type pageGroup struct {
	name  string
	ready bool // the shells find the system by the environment, as the pages assume that do not start one
	pages []page
}

// page is a page, or a section of one ("page#section"), with what its reader brings along.
type page struct {
	place  string
	before string            // typed first
	words  map[string]string // what the reader writes for a word of the page
}

// has says whether a block belongs here: to the section, or to the page but to no section that stands elsewhere.
func (p page) has(b block) bool {
	if p.place == b.place() {
		return true
	}
	if _, elsewhere := typedElsewhere[b.place()]; elsewhere || p.place != b.page {
		return false
	}
	for other := range allPages() {
		if other.place == b.place() {
			return false
		}
	}
	return true
}

// allPages are the pages of all groups.
func allPages() iter.Seq[page] {
	return func(yield func(page) bool) {
		for _, g := range pageGroups {
			for _, p := range g.pages {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// typedElsewhere are sections that another test types.
var typedElsewhere = map[string]string{
	"docs/approvals.md#Two reviewers in five minutes": "TestUsersAndTenantsAreAdded",
}

// notTyped are the beginnings of lines that cannot run in a test.
var notTyped = map[string]string{
	"make ":                        "compiles for minutes; the programs are built",
	"countersign mcp pins accept ": "needs a server that has changed a tool: TestMCPWrap has one",
	"countersign witness run ":     "runs on a machine of its own: TestWitness runs it",
	"sleep ":                       "the test waits until the evidence is there",
	"systemctl ":                   "needs root and systemd",
	"NATS_PASSWORD=... ":           "needs a NATS server of one's own: test/deploy starts one",
	"clickhouse ":                  "needs the program clickhouse; the engine is a library",
	"claude ":                      "needs Claude Code: the tests of mcp_clients_test.go run it",
}

// follower is what a line prints that does not end: once it has begun, and of the news.
type follower struct{ begins, prints string }

// followers are the beginnings of lines that do not end.
var followers = map[string]follower{
	"countersign up ":  {begins: "Countersign is up"},
	"curl -N ":         {begins: ": GOV@", prints: "event: decisions"},
	"countersign tail": {prints: "delete_database"},
	"nats sub ":        {begins: "Subscribing", prints: "[#1]"},
	"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 countersign otel --follow": {},
	"countersign-mcp serve ":  {begins: "http://127.0.0.1"},
	"countersign-mcp decide ": {begins: "http://127.0.0.1"},
}

// printed are parts of lines, and what such a line prints.
var printed = map[string]string{
	"findings --session sess-rogue-1":                          "executed_despite_deny",
	"--protocol aaep examples/requests/aaep-tool-invoked.json": `"verdict":"allow"`,
	"--protocol aaep examples/requests/aaep-irreversible.json": "confirmation_required",
	"--protocol aana examples/requests/aana-public-read.json":  `"execution_allowed":true`,
	"--protocol aana examples/requests/aana-write.json":        "write_missing_explicit_confirmation",
	"--protocol aana examples/requests/aana-refused.json":      "runtime_refusal",
	"examples/requests/aump-action.json":                       `"decision":"allowed"`,
	"countersign mandate list":                                 "EUR 0 spent, 3000 reserved",
	"countersign mandate reserved aump_mnd_parcels_1":          "EUR 3000  reserved since",
	"--protocol tool examples/requests/tool-call.json":         "finance_export",
	"--protocol handoff examples/requests/handoff.json":        "invoice_question",
	"gov.mandates.acme":                                        `"code":"ok"`,
	"examples/agents/agent":                                    "sent to press@newspaper.example",
	"/pre-tool-check":                                          `"route":"refuse"`,
	"$url/event":                                               `"event_id":"3f1e5b9c-52d7-4a8e-9c61-0b7d2f4a6e18"`,
}

// approver approves each call that waits for a person.
const approver = `countersign tail --approvals --since 1m --json | while read -r record; do
  workflow=$(jq -r 'select(.status == "pending").workflow_id' <<< "$record")
  [ -n "$workflow" ] && countersign approvals approve $workflow --yes
done > approver.log 2>&1 &`

// waiting begins a command about the first call of its page that waits for a person.
const waiting = `$(countersign approvals list --json | jq -r '[.workflows[] | select(.status == "pending" and ((.session // "") | startswith("s-waits")))][0]`

// sampleEvents are those of the sessions that the pages speak of.
const sampleEvents = `head -1 examples/sessions/agenthook-rogue.jsonl | countersign admit --protocol agenthook -
countersign admit --protocol agenthook examples/requests/pre-tool-use.json
countersign publish --protocol agenthook examples/sessions/agenthook-rogue.jsonl
countersign publish --protocol agenthook examples/sessions/agenthook-mail.jsonl`

var pageGroups = []pageGroup{
	{name: "first", pages: []page{{place: "docs/start.md"}}},
	{name: "agents", pages: []page{
		{place: "README.md"},
		{place: "docs/hooks.md"},
		{place: "docs/mcp.md", before: "printf sixteen-characters > hmac.txt", words: map[string]string{
			"mcp serve ": "mcp serve --listen 127.0.0.1:0 ", "mcp decide ": "mcp decide --listen 127.0.0.1:0 ", "127.0.0.1:8469": "127.0.0.1:0"}},
	}},
	{name: "producer", pages: []page{{place: "docs/runtimes/aaep.md#A reference producer"}}},
	{name: "system", ready: true, pages: []page{
		{place: "docs/operating.md"},
		{place: "docs/investigating.md", before: sampleEvents, words: map[string]string{
			"DECISION": `$(countersign tail --since 1h --count 1 --json | jq -r .decision_id)`}},
		{place: "docs/auditing.md"},
		{place: "docs/conformance.md"},
		{place: "docs/compliance.md", before: "cp data/keys/checkpoint.pub .", words: monthOfToday},
		{place: "docs/formats.md", words: monthOfToday},
		{place: "docs/evidence-format.md"},
		{place: "docs/opentelemetry.md", words: map[string]string{"http://collector:4318": "$COLLECTOR", "/var/lib/countersign/": ""}},
		{place: "docs/performance.md", words: map[string]string{"calls --rate 100": "calls --rate 20 --seconds 1 --warm-up 0s --variant plain --no-floors"}},
		{place: "docs/gateway.md", words: map[string]string{
			"TOKEN_ID": "$(countersign token list --json | jq -r '.[] | select(.user == \"web1\") | .id')"}},
		{place: "docs/runtimes/README.md"},
		{place: "docs/runtimes/agenthook.md"},
		{place: "docs/runtimes/aaep.md"},
		{place: "docs/runtimes/aana.md"},
		{place: "docs/runtimes/aump.md"},
		{place: "docs/runtimes/handoff.md"},
		{place: "docs/runtimes/tool.md"},
		{place: "docs/sdk.md", before: approver},
		{place: "docs/mandates.md", before: `jq '.id = "aump_mnd_own" | .principal.subject = "acme-runtime"' examples/mandates/courier.json > own.json
countersign mandate put own.json`, words: map[string]string{`"id": "aump_mnd_parcels_1"`: `"id": "aump_mnd_own"`}},
		{place: "docs/publishers.md", before: documentOf("docs/publishers.md", "json", "tools.json")},
		{place: "docs/policies.md"},
		{place: "docs/changing-policies.md"},
		{place: "docs/subscribers.md"},
		{place: "docs/approvals.md", before: `for n in 1 2 3 4; do
  jq ".session_id = \"s-waits-$n\"" examples/requests/pre-tool-use-external.json | countersign admit --protocol agenthook -
done; [ $? = 3 ]`, words: map[string]string{
			"WORKFLOW": waiting + ".workflow_id')", "DIGEST": "$(countersign approvals show " + waiting + ".workflow_id') --json | jq -r .workflow.preview_digest)"}},
		{place: "docs/redaction.md", before: "cp examples/requests/pre-tool-use-external.json event.json; " + documentOf("docs/redaction.md", "yaml", "acme.yaml")},
		{place: "docs/security.md", before: "cp data/keys/checkpoint.pub . && old=$(jq -r .kid data/keys/receipt.json)", words: map[string]string{
			"DIR": "data/keys", "KID": "$old"}},
		{place: "docs/retention.md", before: documentOf("docs/retention.md", "yaml", "acme.yaml"), words: map[string]string{
			"--reason request-17": "--reason request-17 --quiet 1s",
			"HOLD":                "$(countersign retention show --json | jq -r '.holds[0].id')"}},
	}},
}

// monthOfToday: the samples were not recorded in the page's month.
var monthOfToday = map[string]string{"2026-11-01": "$(date -u -d yesterday +%F)", "2026-12-01": "$(date -u +%FT%TZ)"}

// documentOf writes the first JSON or YAML document of a page to a file.
func documentOf(page, language, file string) string {
	return strings.NewReplacer("PAGE", page, "LANGUAGE", language, "FILE", file).Replace(
		"sed -n '/^```LANGUAGE$/,/^```$/p' PAGE | sed '1d;/^```$/,$d' > FILE")
}
