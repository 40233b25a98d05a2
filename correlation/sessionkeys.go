package correlation

import (
	"strings"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
)

// sessionKeyers are the keys of the sessions that a Decoder reads of. One goroutine
// uses them.
type sessionKeyers struct {
	lookupKey  func(tenant, session string) (*digest.Session, bool)
	known      map[sessionName]*digest.SessionKeyer
	missing    map[sessionName]bool // keys that were not ready
	keyMissing bool                 // a key was not ready
}

type sessionName struct{ tenant, session string }

// maxSessionKeyers bounds them; each takes some 700 bytes.
const maxSessionKeyers = 4096

// keyer gives the key of a session, nil if there is none.
func (s *sessionKeyers) keyer(tenant, session string) *digest.SessionKeyer {
	if s.lookupKey == nil || session == "" {
		return nil
	}
	name := sessionName{tenant, session}
	if k, ok := s.known[name]; ok {
		return k
	}
	key, ready := s.lookupKey(tenant, session)
	if !ready {
		s.recordMissing(name)
		return nil
	}
	if s.known == nil || len(s.known) >= maxSessionKeyers {
		s.known = make(map[sessionName]*digest.SessionKeyer, 64)
	}
	k := key.Keyer()
	s.known[sessionName{strings.Clone(tenant), strings.Clone(session)}] = k
	return k
}

func (s *sessionKeyers) recordMissing(name sessionName) {
	s.keyMissing = true
	if s.missing == nil || len(s.missing) >= maxSessionKeyers {
		s.missing = map[sessionName]bool{}
	}
	s.missing[sessionName{strings.Clone(name.tenant), strings.Clone(name.session)}] = true
}

// isMissing tells whether an event is of a session whose key was not ready, and still
// is not: it need not be read before that is there.
func (s *sessionKeyers) isMissing(p subject.Parsed) bool {
	name := sessionName{p.Tenant, p.Session}
	if len(s.missing) == 0 || p.Protocol != protoAgentHook || !s.missing[name] {
		return false
	}
	if s.keyer(p.Tenant, p.Session); s.keyMissing {
		return true
	}
	delete(s.missing, name)
	return false
}

// argumentKeyers are the keys for the arguments of an AgentHook event, if it has any.
func (d *Decoder) argumentKeyers(p subject.Parsed, eventType string) digestKeyers {
	if k := agentHookKinds[eventType]; k != kindPre && k != kindPost {
		return digestKeyers{}
	}
	return digestKeyers{tenant: d.digestKey(p.Tenant), session: d.sessionKeyers.keyer(p.Tenant, p.Session)}
}
