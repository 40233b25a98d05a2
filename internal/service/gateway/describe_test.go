package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/gateway"
	"github.com/countersign-dev/countersign/gateway/endpoint"
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
		if d.Pattern != "GET /metrics" { // only with metrics
			want = append(want, d.Pattern)
		}
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

// checkDescribed reports an answer whose status the description of its endpoint does not have.
func checkDescribed(r *rig, method, path string, status int) {
	r.tb.Helper()
	mux, statuses := http.NewServeMux(), map[string][]int{}
	for _, d := range gateway.Descriptions() {
		if _, registered := statuses[d.Pattern]; !registered {
			statuses[d.Pattern] = nil
			mux.HandleFunc(d.Pattern, func(http.ResponseWriter, *http.Request) {})
		}
		// Of endpoints that share a pattern an answer has the statuses of the one that it is from.
		if _, verb, _ := strings.Cut(d.Path, "}"); strings.HasSuffix(path, verb) || status == http.StatusNotFound {
			statuses[d.Pattern] = slices.Concat(statuses[d.Pattern], d.Statuses)
		}
	}
	req, err := http.NewRequest(method, path, nil)
	servicetest.OK(r.tb, err)
	if _, pattern := mux.Handler(req); pattern != "" && !slices.Contains(statuses[pattern], status) {
		r.tb.Errorf("%s answers %d, which its description does not have", pattern, status)
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
	document, err := strictjson.ParseObject(profile, strictjson.DefaultLimits)
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
