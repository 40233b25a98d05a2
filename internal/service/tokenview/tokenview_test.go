package tokenview

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

const longTenant = "a-tenant-whose-name-is-longer-than-a-token-of-a-subject-may-be-long"

// A gateway that is taken over learns the tokens of its own tenant and nothing of another one: not its users, not
// how many there are, not when they change. What a revocation or a deletion changes is in the next answer.
func TestAttackGatewayListsOthers(t *testing.T) {
	r := servicetest.StartWith(t, streams.Shard{}, func(c *streams.ServerConfig) {
		gateway := func(name string) streams.User {
			return streams.User{Name: name, Password: "pw-" + name, Role: streams.RoleGateway}
		}
		c.Tenants[1].Users = append(c.Tenants[1].Users, gateway("globex-gateway")) // of globex
		c.Tenants = append(c.Tenants, streams.Tenant{Name: longTenant, Users: []streams.User{gateway("long-gateway")}})
	})
	js, space := r.JS("operator"), subject.Space{Prefix: "gov"}
	stop, err := Serve(t.Context(), r.JS("admitter"), space, zerolog.Nop())
	servicetest.OK(t, err)
	defer stop()
	kv, err := streams.OpenBucket(t.Context(), js, streams.BucketTokens)
	servicetest.OK(t, err)
	put := func(tenant, id, user string, revoked *time.Time) {
		t.Helper()
		now := time.Now()
		body, err := json.Marshal(token.Record{Hash: token.Hash(id), Tenant: tenant, User: user, Role: token.Runtime, CreatedAt: now, ExpiresAt: now.Add(time.Hour), RevokedAt: revoked})
		servicetest.OK(t, err)
		_, err = kv.Put(t.Context(), token.Key(tenant, id), body)
		servicetest.OK(t, err)
	}
	id := func(n int) string { return fmt.Sprintf("%020x", n) }
	gateways := map[string]*nats.Conn{servicetest.Tenant: r.Conn(servicetest.Gateway), "globex": r.Conn("globex-gateway"), longTenant: r.Conn("long-gateway")}
	ask := func(tenant, known string) (reply token.ViewReply) {
		t.Helper()
		body, err := json.Marshal(token.ViewRequest{Known: known})
		servicetest.OK(t, err)
		m, err := gateways[tenant].Request(space.Tokens(tenant), body, servicetest.Guard)
		servicetest.OK(t, err)
		servicetest.OK(t, json.Unmarshal(m.Data, &reply))
		return reply
	}
	empty := ask("globex", "")
	put(servicetest.Tenant, id(1), "rt1", nil)
	put(longTenant, id(2), "long", nil)
	for tenant, user := range map[string]string{servicetest.Tenant: "rt1", longTenant: "long"} {
		servicetest.Eventually(t, tenant, func() bool {
			got := ask(tenant, "")
			return len(got.Records) == 1 && strings.Contains(fmt.Sprintf("%s", got.Records), `"`+user+`"`)
		})
	}
	if now := ask("globex", empty.View); now.View != empty.View || now.Records != nil {
		t.Errorf("another tenant's tokens show: %+v, before %+v", now, empty)
	}
	view := ask(servicetest.Tenant, "").View
	put("globex", id(3), "mallory", nil)
	servicetest.Eventually(t, "globex has its own", func() bool { return len(ask("globex", empty.View).Records) == 1 })
	if now := ask(servicetest.Tenant, view); now.View != view || now.Records != nil {
		t.Errorf("another tenant's change shows: %+v", now)
	}
	now := time.Now()
	put(servicetest.Tenant, id(1), "rt1", &now)
	servicetest.Eventually(t, "the revocation", func() bool {
		return strings.Contains(string(ask(servicetest.Tenant, view).Records[id(1)]), "revoked_at")
	})
	servicetest.OK(t, kv.Delete(t.Context(), token.Key(servicetest.Tenant, id(1))))
	servicetest.Eventually(t, "the deletion", func() bool { return ask(servicetest.Tenant, "").View == empty.View })
	for busy := false; !busy; { // it asks without end: it alone gets no more
		busy = ask(servicetest.Tenant, "").Error == "busy"
	}
	if got := ask("globex", ""); got.Error != "" || len(got.Records) != 1 {
		t.Errorf("another tenant's gateway is kept from its tokens: %+v", got)
	}
	for _, subj := range []string{"$JS.API.STREAM.INFO.KV_tokens", "$JS.API.STREAM.MSG.GET.KV_tokens", space.Tokens("globex")} {
		if m, err := gateways[servicetest.Tenant].Request(subj, []byte(`{"subjects_filter":">","seq":1}`), 200*time.Millisecond); err == nil {
			t.Errorf("%s answers a gateway of another tenant: %s", subj, m.Data)
		}
	}
}

// A bucket that was made anew is read from its beginning.
func TestBucketMadeAnew(t *testing.T) {
	s := &server{revision: 9, created: time.Unix(1, 0), tenants: map[string]*held{"acme.": {records: map[string][]byte{"old": []byte("{}")}}}, prefixes: map[string]string{}}
	r := servicetest.Start(t, streams.Shard{})
	s.js = r.JS("admitter")
	servicetest.OK(t, s.look(t.Context()))
	if len(s.tenants) != 0 || s.revision != 0 {
		t.Errorf("revision %d, %d tenants", s.revision, len(s.tenants))
	}
}
