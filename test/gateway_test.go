package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
)

// gatewayReady is what the gateway's callers read of a ready file.
type gatewayReady struct {
	URL   string `json:"gateway_url"`
	Roles map[string]struct {
		User  string `json:"user"`
		Token string `json:"token"`
	} `json:"roles"`
}

func (s *system) gateway(t *testing.T) (g gatewayReady) {
	t.Helper()
	text, err := os.ReadFile(s.ready)
	ok(t, err)
	if ok(t, json.Unmarshal(text, &g)); g.URL == "" {
		t.Fatal("the ready file names no gateway")
	}
	return g
}

// request sends one request with a role's token; the caller closes the body.
func (g gatewayReady) request(t *testing.T, method, path, role string, body []byte) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.Roles[role].Token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

// The gateway of `up`: AAEP's replies, and tokens.
func TestGateway(t *testing.T) {
	t.Parallel()
	s := start(t, "--policy", "../examples/policies/assistant")
	g := s.gateway(t)
	t.Run("AAEP", func(t *testing.T) { aaepReply(t, s, g) })
	// A token that an operator revokes signs in no longer; the token itself is shown nowhere.
	var made struct{ Token, ID string }
	ok(t, json.Unmarshal([]byte(s.run(t, "token", "create", "--for", g.Roles["runtime"].User, "--json").want(t, 0).out), &made))
	g.Roles["made"] = g.Roles["runtime"]
	role := g.Roles["made"]
	role.Token = made.Token
	g.Roles["made"] = role
	wants := func(status int) func() error {
		return func() error {
			if got := g.request(t, "POST", "/validate-tool-precheck", "made", []byte(`{}`)).StatusCode; got != status {
				return errorf("status %d, want %d", got, status)
			}
			return nil
		}
	}
	ok(t, wants(http.StatusOK)()) // the first call
	s.run(t, "token", "revoke", made.ID).want(t, 0)
	eventually(t, "the revoked token is refused", wants(http.StatusUnauthorized))
	// A mapping is no token: it shows nothing secret, there is one for a subject, and it is revoked alike.
	create := []string{"token", "create", "--for", g.Roles["runtime"].User, "--certificate-subject", "CN=web1,O=Acme", "--json"}
	mapped := s.run(t, create...).want(t, 0).out
	var mapping struct{ ID, Subject, Token string }
	ok(t, json.Unmarshal([]byte(mapped), &mapping))
	if mapping.Subject != "certificate:CN=web1,O=Acme" || mapping.Token != "" || strings.Contains(mapped, "cst_") {
		t.Errorf("token create --certificate-subject: %s", mapped)
	}
	s.run(t, create...).want(t, 1)
	s.run(t, "token", "create", "--for", "x", "--oidc-subject", "5f2c81").want(t, 2)
	s.run(t, "token", "revoke", mapping.ID).want(t, 0)
	s.run(t, create...).want(t, 0)
	if list := s.run(t, "token", "list").want(t, 0).out; strings.Contains(list, made.Token) || !strings.Contains(list, "revoked") {
		t.Errorf("token list: %s", list)
	}
}

// A subscriber of `up` replies through the gateway under its own user, and its manifest is signed.
func aaepReply(t *testing.T, s *system, g gatewayReady) {
	res := g.request(t, "POST", "/aaep/v1/subscriptions", "subscriber", []byte(`{"type":"subscription.request","aaep_version":"1.0.0","subscriber_id":"reader","capabilities":{"supports_confirmation_reply":true,"accept_signed_manifests_only":true}}`))
	var accepted object
	ok(t, json.NewDecoder(res.Body).Decode(&accepted))
	if res.StatusCode != http.StatusCreated || accepted.text("signed_manifest") == "" {
		t.Fatalf("%d %v", res.StatusCode, accepted)
	}
	res = g.request(t, "POST", "/aaep/v1/replies", "subscriber", object{"type": "confirmation.reply", "reply_token": "rpl_1", "decision": "accept",
		"subscription_id": accepted["subscription_id"], "timestamp": "2026-11-20T12:00:00.000Z"}.bytes())
	if res.StatusCode != http.StatusNoContent {
		t.Fatalf("a reply: %d", res.StatusCode)
	}
	db := s.auditors(t)
	eventually(t, "the reply is evidence", func() error {
		if n := len(evidence(t, db, "subject = 'gov.events.acme.acme-subscriber.aaep.~.confirmation.reply'")); n != 1 {
			return errorf("%d replies", n)
		}
		return nil
	})
}
