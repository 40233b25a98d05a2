package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// ViewRequest is what a gateway asks for: the records of its tenant's tokens. The tenant is that of the
// subject.
type ViewRequest struct {
	Known string `json:"known,omitempty"` // view that the gateway holds
	After string `json:"after,omitempty"` // id: the page behind it
}

// ViewReply answers a ViewRequest. View names the records by a hash, so it tells nothing of other tenants.
// Without Records the known view is still the newest. Next, if not empty, asks for the next page.
type ViewReply struct {
	View    string                     `json:"view,omitempty"`
	Records map[string]json.RawMessage `json:"records,omitempty"` // by id
	Next    string                     `json:"next,omitempty"`
	Error   string                     `json:"error,omitempty"` // then there is no view
}

// pageBytes bounds the records of a page: a reply must fit a tenant's message.
const pageBytes = 256 << 10

// ViewOf names the records of a tenant, by id.
func ViewOf(records map[string][]byte) string {
	sum := sha256.New()
	for _, id := range slices.Sorted(maps.Keys(records)) {
		one := sha256.Sum256(records[id])
		sum.Write([]byte(id + "\n"))
		sum.Write(one[:])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// PageOf answers a request from the records of its tenant, by id, and their view. Records that are no JSON are
// left out: they let no caller in.
func PageOf(records map[string][]byte, view string, req ViewRequest) ViewReply {
	out := ViewReply{View: view}
	if req.Known == view {
		return out
	}
	size := 0
	out.Records = map[string]json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(records)) {
		if id <= req.After || !json.Valid(records[id]) {
			continue
		}
		if size += len(id) + len(records[id]); size > pageBytes && len(out.Records) > 0 {
			return out
		}
		out.Records[id], out.Next = records[id], id
	}
	out.Next = ""
	return out
}
