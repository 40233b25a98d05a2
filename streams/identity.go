package streams

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// headerRequestInfo is the header that the server stamps on a request that crosses accounts by an
// import with share: true. The server removes any value from the client. On a message that
// crossed no account it proves nothing; therefore no user of the services' account may publish
// on admit, ingest, follow, mandates, resolve or tokens.
const headerRequestInfo = "Nats-Request-Info"

// crossAccount is the prefix of every reply subject that the server makes for a request from
// another account.
const crossAccount = "_R_."

// IsAnswerable reports whether the server made a request's reply subject. Any other reply subject
// is the sender's choice, and an answer on it could be stored in the log or in a bucket.
// Requests from a tenant's account always have a reply subject of the server.
func IsAnswerable(reply string) bool { return strings.HasPrefix(reply, crossAccount) }

// Identity is the sender of a request, as stamped by the server.
type Identity struct {
	Account string // e.g. "tenant-acme:acme-runtime"
	User    string // the NATS user; a runtime's publisher token
}

// IsOfTenant reports whether the identity is a user of a tenant.
func (i Identity) IsOfTenant(tenant string) bool {
	return tenant != "" && i.IsOfTenantToken(subject.Escape(tenant))
}

// IsOfTenantToken is IsOfTenant for a tenant's token in a subject.
func (i Identity) IsOfTenantToken(token string) bool {
	return i.User != "" && i.Account == tenantAccountPrefix+token+accountSeparator+i.User
}

// IsGatewayOf reports whether the identity is a gateway of a tenant. A gateway is no user of the
// tenant (IsOfTenant is false): it speaks for publishers that are registered as reached through it,
// and for no other.
func (i Identity) IsGatewayOf(tenant string) bool {
	return tenant != "" && i.IsGatewayOfToken(subject.Escape(tenant))
}

// IsGatewayOfToken is IsGatewayOf for a tenant's token in a subject.
func (i Identity) IsGatewayOfToken(token string) bool {
	return i.User != "" && i.Account == gatewayAccountPrefix+token+accountSeparator+i.User
}

// RequestIdentity reads the identity from a request's headers. It returns ErrIdentity unless there
// is exactly one well-formed stamp.
func RequestIdentity(h map[string][]string) (Identity, error) {
	values := h[headerRequestInfo]
	if len(values) != 1 {
		return Identity{}, fmt.Errorf("%w: %d %s headers, want one; requests must come through a tenant's account",
			ErrIdentity, len(values), headerRequestInfo)
	}
	var info struct {
		Account string `json:"acc"`
		User    string `json:"user"`
	}
	if err := json.Unmarshal([]byte(values[0]), &info); err != nil {
		return Identity{}, fmt.Errorf("%w: %s is not JSON", ErrIdentity, headerRequestInfo)
	}
	if info.Account == "" || info.User == "" {
		return Identity{}, fmt.Errorf("%w: %s names no account or no user; is the import shared (share: true)?", ErrIdentity, headerRequestInfo)
	}
	return Identity{Account: info.Account, User: info.User}, nil
}
