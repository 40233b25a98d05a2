package gateway

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/schemas"
)

// Description describes one endpoint for its callers. OpenAPI and Page are made of the descriptions.
type Description struct {
	Pattern      string // as it is registered
	Path         string // as callers write it, if the pattern says less
	Roles        string // of the token; "" if the endpoint needs none
	Summary      string
	Body         string            // name of the schema of the body; "" for any
	Media        []string          // of the body, besides application/json
	BodyOptional bool              // a request may have no body
	Values       []string          // of the path's parameter; nil for any
	Query        map[string]string // its parameters, with their meaning
	Statuses     []int

	// Of the answers: the media types of a success, JSON if there are none, and the schemas of its body and of that of an
	// error. A name that begins with a capital letter is one of components.json, any other one of package schemas; "" is no
	// body in JSON, and for an error the gateway's own.
	ReplyMedia   []string
	Reply, Error string
}

// Statuses of endpoints by what they do.
var (
	signedIn = []int{200, 401, 403, 429, 503}
	posted   = join(signedIn, 400, 408, 413, 415, 500)
	asking   = join(posted, 502, 504)
	storing  = join(posted, 504)
)

// creating are the statuses of an endpoint that answers 201 in place of 200.
func creating(list []int) []int {
	return join(slices.DeleteFunc(slices.Clone(list), func(status int) bool { return status == 200 }), 201)
}

func join(list []int, more ...int) []int {
	out := slices.Concat(list, more)
	slices.Sort(out)
	return out
}

// eventMedia are the media types of events besides JSON. In CloudEvents' binary mode the body has that of its data,
// and the headers say the rest.
var eventMedia = []string{mediaLines, mediaEvent, mediaBatch}

// filterQuery are the parameters of a stream; a kind reads those that its records have.
var filterQuery = map[string]string{
	"session": "The session of the records.", "tool_call_id": "The call.", "tool": "The tool; of decisions, calls, approvals and aioc.", "agent": "The agent; of decisions, calls and aioc.",
	"source": "The publisher; not of aaep and aioc.", "rule": "The rule; of findings.", "workflow": "The approval workflow; of approvals.",
	"state": "The verdict, the call's state, the severity or the approval's status; of aioc the decision; not of aaep.",
}

// Descriptions describes every endpoint of the gateway. Endpoints that end a segment with a verb share
// a pattern.
func Descriptions() []Description {
	return []Description{
		{Pattern: "POST /v1/admit/{target}", Roles: token.Runtime, Summary: "Ask the admitter, in the protocol that the path names. The answer is the protocol's own; the headers are those of NATS.", Values: subject.Protocols, Statuses: join(asking, 404), Reply: "Reply", Error: "Refusal"},
		{Pattern: "POST /v1/events/{target}", Roles: token.Runtime, Summary: "Store events: a JSON object, an array, JSON Lines, or CloudEvents in binary, structured or batch mode; 200 once all are durable.", Values: protocol.Published(), Statuses: join(storing, 404), Media: eventMedia, Reply: "Stored"},
		{Pattern: "POST /v1/receipts:verify", Roles: token.Runtime, Summary: "Check a receipt against the call that is about to run.", Statuses: posted, Reply: "ReceiptCheck"},
		{Pattern: "POST /event", Roles: token.Runtime, Summary: "AgentHook: what waits for a verdict asks (a Pre event, WebActionRequested, WebResultSelected, `evidence_phase: pre_commit`), and so does what has no valid type or an unknown phase; what only reports is stored, and so is the end of a call, whatever its phase.", Body: "agenthook/envelope", Statuses: asking, Reply: "HookReply", Error: "Refusal"},
		{Pattern: "POST /pre-tool-check", Roles: token.Runtime, Summary: "AANA: ask; 200 also for a refusal.", Body: "aana/event", Statuses: asking, Reply: "AANAReply", Error: "AANAError"},
		{Pattern: "POST /tool-precheck", Roles: token.Runtime, Summary: "AANA: ask; 200 also for a refusal.", Body: "aana/event", Statuses: asking, Reply: "AANAReply", Error: "AANAError"},
		{Pattern: "POST /validate-tool-precheck", Roles: token.Runtime, Summary: "AANA: judge an event by its schema; nothing is recorded.", Body: "aana/event", Statuses: posted, Reply: "AANAValidation", Error: "AANAError"},
		{Pattern: "GET /health", Summary: "AANA: whether calls can be asked about, and the limits; 503 without NATS or an admitter.", Statuses: []int{200, 503}, Reply: "AANAService", Error: "AANAService"},
		{Pattern: "GET /ready", Summary: "AANA: the same.", Statuses: []int{200, 503}, Reply: "AANAService", Error: "AANAService"},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:evaluateAction", Roles: token.Runtime, Summary: "AUMP: evaluate an action; 404 for an unknown mandate, 410 for a revoked or expired one.", Body: "aump/action-evaluation.request", Statuses: join(asking, 404, 410), Reply: "aump/action-evaluation.response", Error: "Refusal"},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:appendEvidence", Roles: token.Runtime, Summary: "AUMP: store an evidence event; 201 once it is durable, whether the mandate exists or not.", Body: "aump/evidence-event", Statuses: creating(join(storing, 404)), Reply: "Stored"},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:present", Roles: "runtime, subscriber", Summary: "AUMP: a summary of a mandate for its principal.", BodyOptional: true, Statuses: join(asking, 404, 409), Reply: "MandateReply", Error: "MandateError"},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:revoke", Roles: "runtime, subscriber", Summary: "AUMP: the principal revokes its mandate, with a reason; 200 once it is in force.", Statuses: join(asking, 404, 409), Reply: "MandateReply", Error: "MandateError"},
		{Pattern: "GET /.well-known/aump", Summary: "AUMP's profile: versions, schemas, bindings.", Statuses: []int{200}, Reply: "aump/profile"},
		{Pattern: "POST /aioc/tool", Roles: token.Runtime, Summary: "aioc: the tool gate.", Body: "aioc/tool-policy-input", Statuses: asking, Reply: "aioc/policy-result", Error: "Refusal"},
		{Pattern: "POST /aioc/handoff", Roles: token.Runtime, Summary: "aioc: the handoff gate.", Body: "aioc/handoff-policy-input", Statuses: asking, Reply: "aioc/policy-result", Error: "Refusal"},
		{Pattern: "GET /v1/approvals/{workflow}", Roles: "runtime, subscriber, reviewer", Summary: "The state of an approval workflow; ?wait= waits while it is pending. A runtime sees the workflows of its publisher, the others those of the tenant.",
			Query: map[string]string{"wait": "Seconds to wait while the workflow is pending, 0 to 30."}, Statuses: join(signedIn, 400, 404, 500), Reply: "Workflow"},
		{Pattern: "GET /v1/follow/{kind}", Roles: "subscriber, reviewer", Summary: "Server-sent events, one for each record of the kind (decisions, findings, calls, approvals, aaep, aioc); Last-Event-ID continues without a gap or a repetition. A reviewer sees decisions and approvals.",
			Values: slices.Sorted(maps.Keys(filterMembers)), Query: filterQuery, Statuses: join(signedIn, 400, 404, 410, 500), ReplyMedia: []string{mediaStream}},
		{Pattern: "GET /v1/caller", Roles: "any", Summary: "How the token's holder is known: tenant, user and role.", Statuses: signedIn, Reply: "Caller"},
		{Pattern: "POST /aaep/v1/subscriptions", Roles: token.Subscriber, Summary: "AAEP: subscribe; the body is a subscription.request, the answer subscription.accepted with Location, or subscription.rejected.", Statuses: creating(posted), Body: "aaep/subscription.request", Reply: "aaep/subscription.accepted", Error: "SubscriptionError"},
		{Pattern: "GET /aaep/v1/events", Roles: token.Subscriber, Summary: "AAEP: the events of a subscription, as server-sent events; Last-Event-ID continues.",
			Query: map[string]string{"subscription_id": "The subscription, as the Location of its answer has it; needed."}, Statuses: join(signedIn, 404, 500), ReplyMedia: []string{mediaStream}},
		{Pattern: "POST /aaep/v1/replies", Roles: token.Subscriber, Summary: "AAEP: a reply, subscription.renegotiate or subscription.close; 204, or 200 with the new terms.", Statuses: join(storing, 204, 404), Reply: "Terms"},
		{Pattern: "GET /aaep/v1/ws", Roles: token.Subscriber, Summary: "AAEP over WebSocket, subprotocol aaep.v1.", Statuses: []int{101, 400, 401, 403, 429, 503}},
		{Pattern: "GET /.well-known/aaep-manifest.json", Summary: "AAEP's producer manifest; as a JWS with Accept: application/jose.", Statuses: []int{200}, ReplyMedia: []string{mediaJSON, "application/jose"}, Reply: "Document"},
		{Pattern: "GET /schemas/{protocol}/{name}/v1", Summary: "A JSON Schema, under its stable identifier.", Statuses: []int{200, 404}, ReplyMedia: []string{"application/schema+json"}, Reply: "Document"},
		{Pattern: "GET /openapi.json", Summary: "This description, in OpenAPI 3.1.", Statuses: []int{200}, Reply: "Document"},
		{Pattern: "GET /docs", Summary: "This description, for people.", Statuses: []int{200}, ReplyMedia: []string{"text/html"}},
		{Pattern: "GET /healthz", Summary: "State of the gateway.", Statuses: []int{200, 503}, Reply: "Health", Error: "Health"},
		{Pattern: "GET /readyz", Summary: "Whether requests can be handed on.", Statuses: []int{200, 503}, Reply: "Health", Error: "Health"},
		{Pattern: "GET /metrics", Summary: "Metrics for Prometheus.", Statuses: []int{200}, ReplyMedia: []string{"text/plain"}},
	}
}

// probes are answered by the service's health and metrics, which count no answers.
var probes = []string{"GET /healthz", "GET /readyz", "GET /metrics"}

// Answers are the statuses of each pattern, as metrics count them.
func Answers() map[string][]string {
	out := map[string][]string{}
	for _, d := range Descriptions() {
		for _, status := range d.Statuses {
			if text := strconv.Itoa(status); !slices.Contains(probes, d.Pattern) && !slices.Contains(out[d.Pattern], text) {
				out[d.Pattern] = append(out[d.Pattern], text)
			}
		}
	}
	return out
}

// Split returns method and path as callers write them.
func (d Description) Split() (method, path string) {
	method, path, _ = strings.Cut(d.Pattern, " ")
	if d.Path != "" {
		path = d.Path
	}
	return method, path
}

// schemaPath is where the gateway serves a schema: under the path of its identifier.
func schemaPath(name string) string { return "/schemas/" + name + "/v1" }

// Schema returns the JSON Schema of a name, such as aump/mandate.
func Schema(name string) ([]byte, bool) { return schemas.Default().Source(name) }
