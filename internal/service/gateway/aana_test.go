package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"testing"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// AANA's clients find the token's other header, and in errors the members of AANA's own service.
func TestAANAErrors(t *testing.T) {
	const maxBody, rate = 4096, 5
	r := start(t, func(f *Flags) { f.MaxBody, f.Rate = maxBody, rate })
	r.admitter()
	write := example(t, "requests/aana-write.json")
	const path, header = "/tool-precheck", "X-AANA-Token"
	judge := func(name string, status int, want string, res *http.Response, got []byte) {
		t.Helper()
		var members map[string]any
		servicetest.OK(t, json.Unmarshal(got, &members))
		if inner, is := members["detail"].(map[string]any); is {
			delete(inner, "message")
		}
		delete(members, "message")
		if text := fmt.Sprint(members); res.StatusCode != status || want != "" && text != want {
			t.Errorf("%s: %d %s", name, res.StatusCode, got)
		}
	}
	check := func(name string, status int, want, who string, body []byte, headers ...string) {
		t.Helper()
		res, got := r.do("POST", path, who, body, headers...)
		judge(name, status, want, res, got)
	}
	check("token in its header", 200, "", "", write, header, r.tokens["runtime"])
	check("both headers", 200, "", "runtime", write, header, r.tokens["runtime"])
	for name, headers := range map[string][]string{
		"no token": nil, "another token": {header, "x"}, "an expired one": {header, r.tokens["expired"]}, "another tenant's": {header, r.tokens["globex"]},
		"Authorization stands alone": {header, r.tokens["runtime"], "Authorization", "Bearer x"}, "a scheme in it": {header, "Bearer " + r.tokens["runtime"]},
	} {
		check(name, 401, "map[detail:Unauthorized.]", "", write, headers...)
	}
	if res, body := r.do("POST", "/event", "", []byte(`{}`), header, r.tokens["runtime"]); res.StatusCode != 401 {
		t.Errorf("the header at another protocol's endpoint: %d %s", res.StatusCode, body)
	}
	check("a subscriber", 403, "map[detail:map[configured_scopes:[subscriber] error:insufficient_scope required_scope:runtime]]", "", write, header, r.tokens["subscriber"])
	check("a publisher that comes directly", 403, "map[detail:map[error:pre_tool_check_failed]]", "direct", write)
	check("too large", 413, fmt.Sprintf("map[error:request_too_large max_request_bytes:%d]", maxBody), "runtime", make([]byte, maxBody+1))
	want := fmt.Sprintf("map[error:rate_limited requests_per_minute:%d retry_after_seconds:1]", 60*rate)
	for range 100 * rate { // nothing is recorded for these: they are faster than the rate
		if res, got := r.do("POST", "/validate-tool-precheck", "runtime", []byte(`{}`)); res.StatusCode == 429 {
			judge("too many", 429, want, res, got)
			return
		}
	}
	t.Error("no request was refused for its rate")
}

// shadow_mode changes neither the answer nor the record: a refusal stays one.
func TestAANAShadowModeEnforces(t *testing.T) {
	r := start(t)
	r.admitter()
	for file, verdict := range map[string]string{"aana-refused.json": "deny", "aana-write.json": "ask", "aana-public-read.json": "allow"} {
		ask := func(query string) (answer, record any) {
			res, body := r.do("POST", "/pre-tool-check"+query, "runtime", example(t, "requests/"+file), events.HeaderSession, "s-1", events.HeaderToolCallID, "c-"+verdict)
			var got struct {
				Policy struct {
					Mode    string
					Allowed bool `json:"execution_allowed"`
				} `json:"execution_policy"`
			}
			servicetest.OK(t, json.Unmarshal(body, &got))
			d := r.decision(res.Header.Get(events.HeaderDecisionID))
			if got.Policy.Mode != "enforce" || got.Policy.Allowed != (verdict == "allow") || string(d.Verdict) != verdict {
				t.Errorf("%s%s: recorded as %s, answered %s", file, query, d.Verdict, body)
			}
			b, err := json.Marshal(d)
			servicetest.OK(t, err)
			return canCompare(t, body), canCompare(t, b)
		}
		ask("") // opens the workflow that the others find
		answer, record := ask("")
		for _, query := range []string{"?shadow_mode=true", "?shadow_mode=shadow", "?shadow_mode"} {
			if a, b := ask(query); !reflect.DeepEqual(a, answer) || !reflect.DeepEqual(b, record) {
				t.Errorf("%s%s: %v, recorded %v, want %v and %v", file, query, a, b, answer, record)
			}
		}
	}
}
