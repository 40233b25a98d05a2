package retention

import (
	"cmp"
	"errors"
	"fmt"
)

// Class says how much of a message's own content may be stored in evidence. The classes are the
// retention classes of AUMP (its evidence.retention), applied to every protocol. The zero value
// means that no class is set.
type Class uint8

// The classes, from the one that keeps most to the one that keeps least.
const (
	FullTranscript Class = iota + 1 // everything, redacted
	SummaryOnly                     // as Hashes, and the short summaries that the protocols define
	Hashes                          // identifiers, times and digests
	None                            // nothing of the body
)

var classNames = [...]string{FullTranscript: "full_transcript", SummaryOnly: "summary_only", Hashes: "hashes", None: "none"}

func (c Class) String() string {
	if int(c) >= len(classNames) {
		return ""
	}
	return classNames[c]
}

// UnmarshalText parses the name of a class.
func (c *Class) UnmarshalText(b []byte) error {
	for i := FullTranscript; i <= None; i++ {
		if string(b) == classNames[i] {
			*c = i
			return nil
		}
	}
	return fmt.Errorf("%.40q is no retention class: want none, hashes, summary_only or full_transcript", b)
}

// Class is the class of a session: that of the first entry that matches the session and names a
// class, otherwise the tenant's own class. Records without a session have the session "".
func (p *Policy) Class(session string) Class {
	for _, s := range p.text.Sessions {
		if s.Retention != 0 && matchesSession(s.Match, session) {
			return s.Retention
		}
	}
	return cmp.Or(p.text.Retention, FullTranscript)
}

// StrictestClass is the class that keeps least among those that the policy names.
func (p *Policy) StrictestClass() Class {
	strictest := cmp.Or(p.text.Retention, FullTranscript)
	for _, s := range p.text.Sessions {
		strictest = max(strictest, s.Retention)
	}
	return strictest
}

// validate returns what is wrong with one entry of sessions.
func (s *sessionRule) validate() error {
	switch {
	case (s.Log > 0 || s.Evidence > 0) && s.Keep:
		return errors.New("it needs either log and evidence, or keep: true")
	case s.Log == 0 && s.Evidence == 0 && !s.Keep && s.Retention == 0:
		return errors.New("it needs log, evidence, keep: true or retention")
	}
	return nil
}

// ClassRule is one class of a policy and the sessions it applies to; Match is "" for the tenant's
// default.
type ClassRule struct {
	Match string `json:"match,omitempty"`
	Class string `json:"class"`
}

// ClassRules lists the classes of the policy in the order of precedence.
func (p *Policy) ClassRules() (list []ClassRule) {
	for _, s := range p.text.Sessions {
		if s.Retention != 0 {
			list = append(list, ClassRule{s.Match, s.Retention.String()})
		}
	}
	return append(list, ClassRule{Class: cmp.Or(p.text.Retention, FullTranscript).String()})
}

// Unreadable is the policy id in redactions that are made because a policy cannot be read.
const Unreadable = "unreadable"

// Classes holds the classes of one tenant's policy, and a fallback for a policy that cannot be read.
// It is immutable and may be shared.
type Classes struct {
	policy        *Policy // nil: the policy cannot be read, or there is none
	fallbackClass Class   // the class of all sessions if policy is nil
	err           error
}

// ReadClasses reads a policy's classes. revisions are its texts, the newest first, nil where it was
// removed. If the newest cannot be read, the strictest class of the last readable revision applies
// to all sessions; if none can be read, it is None, because the policy's intent is unknown.
func ReadClasses(tenant string, revisions [][]byte) Classes {
	var c Classes
	for i, text := range revisions {
		if text == nil {
			c.fallbackClass = FullTranscript
			return c
		}
		p, err := Parse(tenant, text)
		if err != nil {
			if i == 0 {
				c.err = err
			}
			continue
		}
		if i == 0 {
			c.policy = p
		}
		c.fallbackClass = p.StrictestClass()
		return c
	}
	c.fallbackClass = None
	if len(revisions) == 0 {
		c.fallbackClass = FullTranscript
	}
	return c
}

// Err is the error of a policy that cannot be read, or nil.
func (c Classes) Err() error { return c.err }

// ClassOf returns the class of a session and the id of the policy that sets it.
func (c Classes) ClassOf(session string) (Class, string) {
	if c.policy != nil {
		return c.policy.Class(session), c.policy.ID()
	}
	return c.fallbackClass, Unreadable
}
