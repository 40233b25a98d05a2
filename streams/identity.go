package streams

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// headerRequestInfo is stamped by the server on a request that crosses accounts
// by an import with share: true. The server removes whatever the client put
// there. On a message that crossed no account it proves nothing: no user of the
// services' account may publish on admit, ingest or resolve.
const headerRequestInfo = "Nats-Request-Info"

// crossAccount begins every reply subject that the server makes for a request
// from another account.
const crossAccount = "_R_."

// IsAnswerable reports whether a request's reply subject is one that the server
// made. Every other one was chosen by the sender, and an answer on it could land
// in the log or in a bucket. Requests from a tenant's account never have one.
func IsAnswerable(reply string) bool { return strings.HasPrefix(reply, crossAccount) }

// Identity is who sent a request, by the word of the server.
type Identity struct {
	Account string // e.g. "tenant-acme:acme-runtime"
	User    string // the NATS user; a runtime's publisher token
}

// IsOfTenant reports whether the identity is that of a user of a tenant.
func (i Identity) IsOfTenant(tenant string) bool {
	return tenant != "" && i.IsOfTenantToken(subject.Escape(tenant))
}

// IsOfTenantToken is Of for a tenant's token in a subject.
func (i Identity) IsOfTenantToken(token string) bool {
	return i.User != "" && i.Account == tenantAccountPrefix+token+accountSeparator+i.User
}

// RequestIdentity reads the identity off a request's headers. Anything but
// exactly one well-formed stamp is ErrIdentity.
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
