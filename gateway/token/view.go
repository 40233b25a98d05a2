package token

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"
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

// ViewAge is the greatest age of a view: what was stored so long before a request is in its answer.
const ViewAge = 100 * time.Millisecond

// pageBytes bounds the records of a page: a reply must fit a tenant's message.
const pageBytes = 256 << 10

// View is the records of a tenant, to be given away page by page.
type View struct {
	name    string
	ids     []string // sorted
	records map[string][]byte
}

// NewView makes a view of the records of a tenant, by id; they must not be changed while it is used. Records that
// are no JSON are left out: they let no caller in.
func NewView(records map[string][]byte) *View {
	v, sum := &View{records: records}, sha256.New()
	for _, id := range slices.Sorted(maps.Keys(records)) {
		if !json.Valid(records[id]) {
			continue
		}
		v.ids = append(v.ids, id)
		one := sha256.Sum256(records[id])
		sum.Write([]byte(id + "\n"))
		sum.Write(one[:])
	}
	v.name = hex.EncodeToString(sum.Sum(nil))
	return v
}

// Page answers a request.
func (v *View) Page(req ViewRequest) ViewReply {
	out := ViewReply{View: v.name}
	if req.Known == v.name {
		return out
	}
	out.Records = map[string]json.RawMessage{}
	from, found := slices.BinarySearch(v.ids, req.After)
	if found {
		from++
	}
	size := 0
	for _, id := range v.ids[from:] {
		if size += len(id) + len(v.records[id]); size > pageBytes && len(out.Records) > 0 {
			return out
		}
		out.Records[id], out.Next = v.records[id], id
	}
	out.Next = ""
	return out
}
