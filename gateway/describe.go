package gateway

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/schemas"
)

// Description describes one endpoint for its callers. OpenAPI and Page are made of the descriptions.
type Description struct {
	Pattern  string // as it is registered
	Path     string // as callers write it, if the pattern says less
	Roles    string // of the token; "" if the endpoint needs none
	Summary  string
	Body     string            // name of the schema of the body; "" for any
	Query    map[string]string // its parameters, with their meaning
	Statuses []int
}

// Statuses of endpoints by what they do.
var (
	signedIn = []int{200, 401, 403, 429, 503}
	posted   = join(signedIn, 400, 408, 413, 415, 500)
	asking   = join(posted, 502, 504)
	storing  = join(posted, 504)
)

func join(list []int, more ...int) []int {
	out := slices.Concat(list, more)
	slices.Sort(out)
	return out
}

// Roles of tokens.
const (
	runtime    = "runtime"
	subscriber = "subscriber"
)

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
		{Pattern: "POST /v1/admit/{target}", Roles: runtime, Summary: "Ask the admitter, in the protocol that the path names. The answer is the protocol's own; the headers are those of NATS.", Statuses: join(asking, 404)},
		{Pattern: "POST /v1/events/{target}", Roles: runtime, Summary: "Store events: a JSON object, an array, JSON Lines, or CloudEvents in binary, structured or batch mode; 200 once all are durable.", Statuses: join(storing, 404)},
		{Pattern: "POST /v1/receipts:verify", Roles: runtime, Summary: "Check a receipt against the call that is about to run.", Statuses: posted},
		{Pattern: "POST /event", Roles: runtime, Summary: "AgentHook: PreToolUse asks, however it is written, and so does what has no valid type; any other event is stored.", Body: "agenthook/envelope", Statuses: asking},
		{Pattern: "POST /pre-tool-check", Roles: runtime, Summary: "AANA: ask; 200 also for a refusal.", Body: "aana/event", Statuses: asking},
		{Pattern: "POST /tool-precheck", Roles: runtime, Summary: "AANA: ask; 200 also for a refusal.", Body: "aana/event", Statuses: asking},
		{Pattern: "POST /validate-tool-precheck", Roles: runtime, Summary: "AANA: judge an event by its schema; nothing is recorded.", Body: "aana/event", Statuses: posted},
		{Pattern: "GET /health", Summary: "AANA: whether calls can be asked about, and the limits; 503 without NATS or an admitter.", Statuses: []int{200, 503}},
		{Pattern: "GET /ready", Summary: "AANA: the same.", Statuses: []int{200, 503}},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:evaluateAction", Roles: runtime, Summary: "AUMP: evaluate an action; 404 for an unknown mandate, 410 for a revoked or expired one.", Body: "aump/action-evaluation.request", Statuses: join(asking, 404, 410)},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:appendEvidence", Roles: runtime, Summary: "AUMP: store an evidence event; 201 once it is durable, whether the mandate exists or not.", Body: "aump/evidence-event", Statuses: join(storing, 201, 404)},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:present", Roles: "runtime, subscriber", Summary: "AUMP: a summary of a mandate for its principal.", Statuses: join(asking, 404, 409)},
		{Pattern: "POST /aump/mandates/{target}", Path: "/aump/mandates/{id}:revoke", Roles: "runtime, subscriber", Summary: "AUMP: the principal revokes its mandate, with a reason; 200 once it is in force.", Statuses: join(asking, 404, 409)},
		{Pattern: "GET /.well-known/aump", Summary: "AUMP's profile: versions, schemas, bindings.", Statuses: []int{200}},
		{Pattern: "POST /aioc/tool", Roles: runtime, Summary: "aioc: the tool gate.", Body: "aioc/tool-policy-input", Statuses: asking},
		{Pattern: "POST /aioc/handoff", Roles: runtime, Summary: "aioc: the handoff gate.", Body: "aioc/handoff-policy-input", Statuses: asking},
		{Pattern: "GET /v1/approvals/{workflow}", Roles: "runtime, subscriber, reviewer", Summary: "The state of an approval workflow; ?wait= waits while it is pending. A runtime sees the workflows of its publisher, the others those of the tenant.",
			Query: map[string]string{"wait": "Seconds to wait while the workflow is pending, 0 to 30."}, Statuses: join(signedIn, 400, 404, 500)},
		{Pattern: "GET /v1/follow/{kind}", Roles: "subscriber, reviewer", Summary: "Server-sent events, one for each record of the kind (decisions, findings, calls, approvals, aaep, aioc); Last-Event-ID continues without a gap or a repetition. A reviewer sees decisions and approvals.",
			Query: filterQuery, Statuses: join(signedIn, 400, 404, 410, 500)},
		{Pattern: "GET /v1/caller", Roles: "any", Summary: "How the token's holder is known: tenant, user and role.", Statuses: signedIn},
		{Pattern: "POST /aaep/v1/subscriptions", Roles: subscriber, Summary: "AAEP: subscribe; the body is a subscription.request, the answer subscription.accepted with Location, or subscription.rejected.", Statuses: join(posted, 201)},
		{Pattern: "GET /aaep/v1/events", Roles: subscriber, Summary: "AAEP: the events of a subscription, as server-sent events; Last-Event-ID continues.", Statuses: join(signedIn, 400, 404, 410, 500)},
		{Pattern: "POST /aaep/v1/replies", Roles: subscriber, Summary: "AAEP: a reply, subscription.renegotiate or subscription.close; 204, or 200 with the new terms.", Statuses: join(storing, 204, 404, 410, 502)},
		{Pattern: "GET /aaep/v1/ws", Roles: subscriber, Summary: "AAEP over WebSocket, subprotocol aaep.v1.", Statuses: join(signedIn, 101, 400)},
		{Pattern: "GET /.well-known/aaep-manifest.json", Summary: "AAEP's producer manifest; as a JWS with Accept: application/jose.", Statuses: []int{200}},
		{Pattern: "GET /schemas/{protocol}/{name}/v1", Summary: "A JSON Schema, under its stable identifier.", Statuses: []int{200, 404}},
		{Pattern: "GET /openapi.json", Summary: "This description, in OpenAPI 3.1.", Statuses: []int{200}},
		{Pattern: "GET /docs", Summary: "This description, for people.", Statuses: []int{200}},
		{Pattern: "GET /healthz", Summary: "State of the gateway.", Statuses: []int{200, 503}},
		{Pattern: "GET /readyz", Summary: "Whether requests can be handed on.", Statuses: []int{200, 503}},
		{Pattern: "GET /metrics", Summary: "Metrics for Prometheus.", Statuses: []int{200}},
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

type object = map[string]any

// OpenAPI is the description of the gateway in OpenAPI 3.1, JSON.
func OpenAPI(version string) ([]byte, error) {
	paths := object{}
	for _, d := range Descriptions() {
		method, path := d.Split()
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = d.operation(path)
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info":    object{"title": "Countersign gateway", "version": version, "description": "Anything but a 200 with the verdict allow is no permission. A header that is too large is answered 431 everywhere."},
		"paths":   paths,
		"components": object{"securitySchemes": object{"bearer": object{"type": "http", "scheme": "bearer"}},
			"schemas": object{"Error": object{"type": "object", "properties": object{"error": object{"type": "string"}, "message": object{"type": "string"}}}}},
	})
}

func (d Description) operation(path string) object {
	responses := object{}
	for _, status := range d.Statuses {
		responses[strconv.Itoa(status)] = object{"description": http.StatusText(status)}
	}
	op := object{"summary": d.Summary, "responses": responses}
	if d.Roles != "" {
		op["security"], op["description"] = []object{{"bearer": []string{}}}, "Role of the token: "+d.Roles+"."
	}
	if strings.HasPrefix(d.Pattern, http.MethodPost) {
		schema := object{}
		if d.Body != "" {
			schema["$ref"] = schemaPath(d.Body)
		}
		op["requestBody"] = object{"required": true, "content": object{mediaJSON: object{"schema": schema}}}
	}
	var parameters []object
	for rest := path; ; {
		_, after, found := strings.Cut(rest, "{")
		if !found {
			break
		}
		name, behind, _ := strings.Cut(after, "}")
		parameters, rest = append(parameters, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}}), behind
	}
	for _, name := range slices.Sorted(maps.Keys(d.Query)) {
		parameters = append(parameters, object{"name": name, "in": "query", "description": d.Query[name], "schema": object{"type": "string"}})
	}
	if parameters != nil {
		op["parameters"] = parameters
	}
	return op
}

// schemaPath is where the gateway serves a schema: under the path of its identifier.
func schemaPath(name string) string { return "/schemas/" + name + "/v1" }

// Schema returns the JSON Schema of a name, such as aump/mandate.
func Schema(name string) ([]byte, bool) { return schemas.Default().Source(name) }
