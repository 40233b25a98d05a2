package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/protocol"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/metrics"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/schemas"
)

// Every pattern of the handlers is described, and nothing else is.
func TestEveryEndpointIsDescribed(t *testing.T) {
	s := &server{}
	s.env.Health = daemon.NewHealth()
	var want []string
	for _, d := range gateway.Descriptions() {
		want = append(want, d.Pattern)
	}
	got := slices.DeleteFunc(slices.Clone(s.routes().patterns), func(p string) bool { return p == "/" })
	slices.Sort(got)
	slices.Sort(want)
	want = slices.Compact(want)
	if !slices.Equal(got, want) {
		t.Errorf("registered %q, described %q: say it in gateway/describe.go", got, want)
	}
}

// Every answer that is described has its own counter, which is there from the start.
func TestEveryAnswerIsCounted(t *testing.T) {
	registry := metrics.New(ServiceName)
	s, err := newServer(Flags{}, daemon.Env{Metrics: registry}, nil)
	servicetest.OK(t, err)
	series := func(d gateway.Description, status int, n string) string {
		return fmt.Sprintf("{endpoint=%q,service=%q,status=%q} %s\n", d.Pattern, ServiceName, strconv.Itoa(status), n)
	}
	before := string(registry.Text())
	counted := slices.DeleteFunc(gateway.Descriptions(), func(d gateway.Description) bool {
		return slices.Contains([]string{"GET /healthz", "GET /readyz", "GET /metrics"}, d.Pattern)
	})
	for _, d := range counted {
		for _, status := range d.Statuses {
			if !strings.Contains(before, series(d, status, "0")) {
				t.Errorf("%s has no counter of %d", d.Pattern, status)
			}
			s.write(httptest.NewRecorder(), d.Pattern, endpoint.Response{Status: status})
		}
	}
	after := string(registry.Text())
	for _, d := range counted {
		for _, status := range d.Statuses {
			if strings.Contains(after, series(d, status, "0")) {
				t.Errorf("%d of %s is not counted", status, d.Pattern)
			}
		}
	}
	if strings.Contains(after, `="other"`) {
		t.Error("an answer is counted as other")
	}
}

// openAPI is the gateway's description of itself, with its schemas compiled as they are needed.
type openAPI struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	paths    map[string]map[string]operation
}

type operation struct {
	OperationID string
	Responses   map[string]struct{ Content, Headers map[string]any }
	RequestBody struct {
		Required bool
		Content  map[string]struct {
			Schema struct {
				Ref string `json:"$ref"`
			}
		}
	}
	Parameters []parameter
	Security   []map[string][]string
}

type parameter struct {
	Name, In string
	Schema   struct{ Enum []string }
}

const apiURL = "http://gateway/openapi.json"

// description is that of a gateway with every way to sign in.
var description = sync.OnceValues(func() (*openAPI, error) {
	text, err := gateway.OpenAPI("test", gateway.SignIn{Certificates: true, Issuer: "https://login.example/"})
	if err != nil {
		return nil, err
	}
	d := &openAPI{compiler: jsonschema.NewCompiler()}
	d.compiler.LoadURL = func(url string) (io.ReadCloser, error) {
		name := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(url, schemas.Base), "http://gateway/schemas/"), "/v1")
		schema, known := gateway.Schema(name)
		if !known {
			return nil, fmt.Errorf("no schema %s", url)
		}
		return io.NopCloser(bytes.NewReader(schema)), nil
	}
	var api struct {
		Paths map[string]map[string]operation
	}
	err = errors.Join(d.compiler.AddResource(apiURL, bytes.NewReader(text)), json.Unmarshal(text, &api))
	d.paths = api.Paths
	return d, err
})

// validate holds a body against the schema of an answer.
func (d *openAPI) validate(path, method, status, media string, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	token := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	at := fmt.Sprintf("%s#/paths/%s/%s/responses/%s/content/%s/schema", apiURL, token.Replace(path), method, status, token.Replace(media))
	schema, err := d.compiler.Compile(at)
	if err != nil {
		return err
	}
	var document any = string(body)
	if strings.HasSuffix(media, "json") {
		if err := json.Unmarshal(body, &document); err != nil {
			return err
		}
	}
	return schema.Validate(document)
}

// describedAs is the path under which an answer's endpoint is described; "" for none.
func describedAs(req *http.Request, status int) (found string) {
	mux := http.NewServeMux()
	paths := map[string][]string{}
	for _, d := range gateway.Descriptions() {
		if _, registered := paths[d.Pattern]; !registered {
			mux.HandleFunc(d.Pattern, func(http.ResponseWriter, *http.Request) {})
		}
		_, path := d.Split()
		paths[d.Pattern] = append(paths[d.Pattern], path)
	}
	_, pattern := mux.Handler(req)
	for _, path := range paths[pattern] {
		// Of endpoints that share a pattern the answer is from the one of its verb.
		if _, verb, _ := strings.Cut(path, "}"); strings.HasSuffix(req.URL.Path, verb) {
			return path
		}
	}
	if len(paths[pattern]) > 0 && status == http.StatusNotFound { // another verb
		return paths[pattern][0]
	}
	return ""
}

// checkDescribed reports an answer whose status, media type, body or headers its description does not have.
func checkDescribed(r *rig, res *http.Response, body []byte) {
	r.tb.Helper()
	d, err := description()
	servicetest.OK(r.tb, err)
	path, method, status := describedAs(res.Request, res.StatusCode), strings.ToLower(res.Request.Method), strconv.Itoa(res.StatusCode)
	if path == "" {
		return
	}
	answer, known := d.paths[path][method].Responses[status]
	media, _, _ := strings.Cut(res.Header.Get("Content-Type"), ";")
	_, has := answer.Content[media]
	switch {
	case !known:
		r.tb.Errorf("%s answers %s, which its description does not have", path, status)
	case len(body) == 0 && len(answer.Content) == 0:
	case !has:
		r.tb.Errorf("%s answers %s in %q, which its description does not have", path, status, media)
	default:
		if err := d.validate(path, method, status, media, body); err != nil {
			r.tb.Errorf("%s answers %s with a body that its description does not have: %v\n%.300s", path, status, err, body)
		}
	}
	for name := range res.Header {
		if _, said := answer.Headers[name]; (strings.HasPrefix(name, "Countersign-") || name == "Retry-After") && !said {
			r.tb.Errorf("%s answers with the header %s, which its description does not have", path, name)
		}
	}
}

// A description has the media types that its endpoint reads, and no others; the ways to sign in are those of the
// gateway.
func TestDescriptionOfRequests(t *testing.T) {
	d, err := description()
	servicetest.OK(t, err)
	rows := map[string]endpoint.Row{}
	for _, row := range gateway.Rows() {
		rows[row.Pattern] = row
	}
	for _, said := range gateway.Descriptions() {
		method, path := said.Split()
		op := d.paths[path][strings.ToLower(method)]
		if ways := len(op.Security); (ways == 0) != (said.Roles == "") || ways > 0 && ways != 3+len(rows[said.Pattern].TokenHeader)/len("X-Aana-Token") {
			t.Errorf("%s: %v", path, op.Security)
		}
		for _, status := range said.Statuses {
			for media := range op.Responses[strconv.Itoa(status)].Content {
				if err := d.validate(path, strings.ToLower(method), strconv.Itoa(status), media, []byte("null")); strings.Contains(fmt.Sprintf("%T", err), "SchemaError") {
					t.Errorf("%s, %d: %v", path, status, err)
				}
			}
		}
		if method != http.MethodPost {
			continue
		}
		if op.RequestBody.Required == strings.HasSuffix(path, ":present") {
			t.Errorf("%s: a body is needed: %t", path, op.RequestBody.Required)
		}
		for _, media := range []string{"application/json", "application/x-ndjson", "application/cloudevents+json", "application/cloudevents-batch+json", "text/plain", "application/x-www-form-urlencoded"} {
			_, described := op.RequestBody.Content[media]
			if reads := gateway.AcceptsContent(said.Pattern, http.Header{"Content-Type": {media}}); reads != described {
				t.Errorf("%s: reads %s: %t, described: %t", path, media, reads, described)
			}
		}
	}
	for want, flags := range map[string]Flags{"[bearer tokenHeader]": {}, "[bearer certificate tokenHeader]": {ClientCA: "ca.pem"}, "[bearer oidc tokenHeader]": {Issuer: "https://login.example", Audiences: []string{"x"}}} {
		s, err := newServer(flags, daemon.Env{Metrics: metrics.New(ServiceName)}, nil)
		servicetest.OK(t, err)
		answer := httptest.NewRecorder()
		s.routes().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
		var api struct {
			Components struct {
				Schemes map[string]any `json:"securitySchemes"`
			}
		}
		servicetest.OK(t, json.Unmarshal(answer.Body.Bytes(), &api))
		if got := fmt.Sprint(slices.Sorted(maps.Keys(api.Components.Schemes))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A description has the headers that its endpoint hands on, the values of its path, and a name of its own.
func TestDescriptionOfParameters(t *testing.T) {
	d, err := description()
	servicetest.OK(t, err)
	rows, ids := map[string]endpoint.Row{}, map[string]string{}
	for _, row := range gateway.Rows() {
		rows[row.Pattern] = row
	}
	candidates := append(protocol.Headers(), events.HeaderSession, events.HeaderToolCallID, events.HeaderAgent, events.HeaderTrace, events.HeaderWorkflow, events.HeaderPublisher, events.HeaderDecisionID)
	for _, said := range gateway.Descriptions() {
		method, path := said.Split()
		op := d.paths[path][strings.ToLower(method)]
		if other := ids[op.OperationID]; op.OperationID == "" || other != "" {
			t.Errorf("%s and %q are both %q", path, other, op.OperationID)
		}
		ids[op.OperationID] = path
		if slices.Contains(said.Statuses, http.StatusOK) && slices.Contains(said.Statuses, http.StatusCreated) {
			t.Errorf("%s: 200 and 201", path)
		}
		var plan endpoint.Plan
		if row, is := rows[said.Pattern]; is {
			_, target, _ := strings.Cut(path, "{")
			plan, _ = row.Plan(endpoint.Request{Target: strings.NewReplacer("target}", "agenthook", "id}", "m").Replace(target), Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte("{}")})
		}
		for _, name := range candidates {
			header := http.Header{}
			header.Set(name, "x")
			reads := (plan.Admit != nil || plan.Publish != nil) && len(gateway.MessageHeaders(header)) > 0
			if slices.ContainsFunc(op.Parameters, func(p parameter) bool { return p.In == "header" && p.Name == name }) != reads {
				t.Errorf("%s: hands on %s: %t, and its description says otherwise", path, name, reads)
			}
		}
	}
	values := func(path, method string) []string { return d.paths[path][method].Parameters[0].Schema.Enum }
	if got := values("/v1/admit/{target}", "post"); !slices.Equal(got, subject.Protocols) {
		t.Errorf("protocols: %v", got)
	}
	if got, want := values("/v1/follow/{kind}", "get"), slices.Sorted(slices.Values(followRoles[token.Subscriber])); !slices.Equal(got, want) {
		t.Errorf("kinds: %v, want %v", got, want)
	}
}

// What describes the gateway needs no token, loads and runs nothing, and refers to schemas that exist.
func TestDescription(t *testing.T) {
	r := start(t)
	res, body := r.do("GET", "/openapi.json", "", nil)
	var api struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Responses   map[string]any
			RequestBody struct {
				Content map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
		}
	}
	servicetest.OK(t, json.Unmarshal(body, &api))
	if res.StatusCode != 200 || api.OpenAPI != "3.1.0" || api.Paths["/aump/mandates/{id}:evaluateAction"]["post"].Responses["410"] == nil {
		t.Errorf("%d %s", res.StatusCode, body)
	}
	refs := 0
	_, page := r.do("GET", "/docs", "", nil)
	for path, methods := range api.Paths {
		if !strings.Contains(string(page), "<code>"+path+"</code>") {
			t.Errorf("the page does not list %s", path)
		}
		for _, op := range methods {
			for status := range op.Responses {
				if n, err := strconv.Atoi(status); err != nil || http.StatusText(n) == "" {
					t.Errorf("%s: status %s", path, status)
				}
			}
			if ref := op.RequestBody.Content["application/json"].Schema.Ref; ref != "" {
				refs++
				if res, text := r.do("GET", ref, "", nil); res.StatusCode != 200 || !strings.Contains(string(text), strings.Replace(ref, "/schemas/", schemas.Base, 1)) {
					t.Errorf("%s: %d %.80s", ref, res.StatusCode, text)
				}
			}
		}
	}
	if res, _ := r.do("GET", "/docs", "", nil); refs < 5 || res.Header.Get("Content-Security-Policy") != gateway.PagePolicy || strings.Contains(string(page), "<script") {
		t.Errorf("%d references, headers %v", refs, res.Header)
	}
	_, profile := r.do("GET", "/.well-known/aump", "", nil)
	document, err := strictjson.ReadObject(profile, strictjson.DefaultLimits)
	servicetest.OK(t, err)
	if found := schemas.Default().Validate("aump/profile", document); len(found) > 0 {
		t.Errorf("AUMP's profile: %v", found)
	}
	for _, path := range []string{"/schemas/aump/none/v1", "/schemas/..%2F..%2Fetc/passwd/v1", "/schemas/aump/mandate%2Fv1/v1"} {
		if res, _ := r.do("GET", path, "", nil); res.StatusCode != 404 {
			t.Errorf("%s: %d", path, res.StatusCode)
		}
	}
}
