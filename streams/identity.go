package streams

import (
	"encoding/json"
	"fmt"
)

// headerRequestInfo is stamped by the server on a request that crosses accounts
// by an import with share: true. The server removes whatever the client put
// there. On a message that crossed no account it proves nothing: nobody in the
// services' account may publish on admit or resolve.
const headerRequestInfo = "Nats-Request-Info"

// Identity is who sent a request, by the word of the server.
type Identity struct {
	Account string // e.g. "tenant-acme"
	User    string // the NATS user; a runtime's publisher token
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
