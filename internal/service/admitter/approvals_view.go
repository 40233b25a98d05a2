package admitter

import (
	"sync"
	"time"

	"github.com/countersign-dev/countersign/admission/approval"
)

// approvalIndex is the view of the approvals bucket. Its workflows are replaced, never modified.
// It implements approval.Index.
type approvalIndex struct {
	mu       sync.RWMutex
	byKey    map[string]cachedApproval
	byID     map[[2]string]string                              // tenant, id -> key
	sessions map[approvalSession]map[string]*approval.Workflow // workflows that are not final, by key
	pending  map[approvalSession]int                           // by source (no session)
}

// approvalSession is a publisher's session or, without a session, the publisher.
type approvalSession struct{ tenant, source, session string }

// cachedApproval is the state of one key. workflow is nil if the value cannot be read.
type cachedApproval struct {
	workflow *approval.Workflow
	revision uint64
	since    time.Time // when this process first saw the revision
	logged   bool      // its record is known to be in the log
}

func newApprovalIndex() *approvalIndex {
	return &approvalIndex{
		byKey: map[string]cachedApproval{}, byID: map[[2]string]string{},
		sessions: map[approvalSession]map[string]*approval.Workflow{}, pending: map[approvalSession]int{},
	}
}

// replaceWith takes over the content of o, which must not be used afterwards.
func (v *approvalIndex) replaceWith(o *approvalIndex) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for key, h := range o.byKey {
		if was := v.byKey[key]; was.revision == h.revision {
			h.since, h.logged = was.since, was.logged
			o.byKey[key] = h
		}
	}
	v.byKey, v.byID, v.sessions, v.pending = o.byKey, o.byID, o.sessions, o.pending
}

// put stores the value that a key has at a revision, unless a newer revision is known.
func (v *approvalIndex) put(key string, w *approval.Workflow, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byKey[key].revision >= revision {
		return
	}
	v.deleteKey(key)
	v.byKey[key] = cachedApproval{workflow: w, revision: revision, since: time.Now()}
	if w == nil {
		return
	}
	v.byID[[2]string{w.Tenant, w.ID}] = key
	switch w.Status {
	case approval.Pending:
		v.pending[approvalSession{tenant: w.Tenant, source: w.Source}]++
	case approval.Approved, approval.Denied:
	default:
		return
	}
	scope := approvalSession{w.Tenant, w.Source, w.Session}
	if v.sessions[scope] == nil {
		v.sessions[scope] = map[string]*approval.Workflow{}
	}
	v.sessions[scope][key] = w
}

// removeKey removes a key that is no longer in the bucket.
func (v *approvalIndex) removeKey(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deleteKey(key)
}

// removeAt removes a key that was deleted at a revision.
func (v *approvalIndex) removeAt(key string, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byKey[key].revision < revision {
		v.deleteKey(key)
	}
}

func (v *approvalIndex) deleteKey(key string) {
	w := v.byKey[key].workflow
	delete(v.byKey, key)
	if w == nil {
		return
	}
	delete(v.byID, [2]string{w.Tenant, w.ID})
	if w.Status == approval.Pending {
		source := approvalSession{tenant: w.Tenant, source: w.Source}
		if v.pending[source]--; v.pending[source] == 0 {
			delete(v.pending, source)
		}
	}
	scope := approvalSession{w.Tenant, w.Source, w.Session}
	if delete(v.sessions[scope], key); len(v.sessions[scope]) == 0 {
		delete(v.sessions, scope)
	}
}

// lookup returns what is known of a key; revision 0 means nothing.
func (v *approvalIndex) lookup(key string) cachedApproval {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.byKey[key]
}

// markLogged notes that the record of a revision is in the log.
func (v *approvalIndex) markLogged(key string, revision uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if h, there := v.byKey[key]; there && h.revision == revision {
		h.logged = true
		v.byKey[key] = h
	}
}

// eachKey calls f for every readable key. f may change the index.
func (v *approvalIndex) eachKey(f func(key string, h cachedApproval)) {
	v.mu.RLock()
	list := make(map[string]cachedApproval, len(v.byKey))
	for key, h := range v.byKey {
		list[key] = h
	}
	v.mu.RUnlock()
	for key, h := range list {
		if h.workflow != nil {
			f(key, h)
		}
	}
}

// countByTenant counts the workflows of each tenant.
func (v *approvalIndex) countByTenant() map[string]int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	held := map[string]int{}
	for _, h := range v.byKey {
		if h.workflow != nil {
			held[h.workflow.Tenant]++
		}
	}
	return held
}

// WorkflowAt implements approval.Index.
func (v *approvalIndex) WorkflowAt(tenant, slot string) (*approval.Workflow, uint64) {
	h := v.lookup(approval.StoreKey(tenant, slot))
	return h.workflow, h.revision
}

// Find implements approval.Index.
func (v *approvalIndex) Find(tenant, id string) *approval.Workflow {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.byKey[v.byID[[2]string{tenant, id}]].workflow
}

// SessionWorkflows implements approval.Index.
func (v *approvalIndex) SessionWorkflows(tenant, source, session string) []*approval.Workflow {
	v.mu.RLock()
	defer v.mu.RUnlock()
	open := v.sessions[approvalSession{tenant, source, session}]
	if len(open) == 0 {
		return nil
	}
	list := make([]*approval.Workflow, 0, len(open))
	for _, w := range open {
		list = append(list, w)
	}
	return list
}

// PendingCount implements approval.Index.
func (v *approvalIndex) PendingCount(tenant, source string) int {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.pending[approvalSession{tenant: tenant, source: source}]
}
