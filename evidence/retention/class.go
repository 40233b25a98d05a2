package retention

import (
	"cmp"
	"errors"
	"fmt"
)

// Class says what of a message's own content may be stored in evidence at all: the
// retention classes of AUMP (its evidence.retention), for every protocol. The
// zero value is not set.
type Class uint8

// The classes, from the one that keeps most to the one that keeps least.
const (
	FullTranscript Class = iota + 1 // everything, redacted
	SummaryOnly                     // as Hashes, and short summaries that the protocols define
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

// UnmarshalText reads a class by its name.
func (c *Class) UnmarshalText(b []byte) error {
	for i := FullTranscript; i <= None; i++ {
		if string(b) == classNames[i] {
			*c = i
			return nil
		}
	}
	return fmt.Errorf("%.40q is no retention class: want none, hashes, summary_only or full_transcript", b)
}

// Class is what may be stored of the messages of a session: what the first entry
// that matches it and names a class says, else the tenant's own class. Records
// without a session have the session "".
func (p *Policy) Class(session string) Class {
	for _, s := range p.text.Sessions {
		if s.Retention != 0 && matchesSession(s.Match, session) {
			return s.Retention
		}
	}
	return cmp.Or(p.text.Retention, FullTranscript)
}

// StrictestClass is the class of those that the policy names that keeps least.
func (p *Policy) StrictestClass() Class {
	strictest := cmp.Or(p.text.Retention, FullTranscript)
	for _, s := range p.text.Sessions {
		strictest = max(strictest, s.Retention)
	}
	return strictest
}

// validate says what is wrong with one entry of sessions.
func (s *sessionRule) validate() error {
	switch {
	case (s.Log > 0 || s.Evidence > 0) && s.Keep:
		return errors.New("it needs either log and evidence, or keep: true")
	case s.Log == 0 && s.Evidence == 0 && !s.Keep && s.Retention == 0:
		return errors.New("it needs log, evidence, keep: true or retention")
	}
	return nil
}

// ClassRule is one line of what a policy says of classes: which sessions, the
// tenant's default being "", and their class.
type ClassRule struct {
	Match string `json:"match,omitempty"`
	Class string `json:"class"`
}

// ClassRules lists what the policy says of classes, in the order in which it
// counts.
func (p *Policy) ClassRules() (list []ClassRule) {
	for _, s := range p.text.Sessions {
		if s.Retention != 0 {
			list = append(list, ClassRule{s.Match, s.Retention.String()})
		}
	}
	return append(list, ClassRule{Class: cmp.Or(p.text.Retention, FullTranscript).String()})
}

// Unreadable is the name that stands for a policy that cannot be read in what is
// withheld because of it.
const Unreadable = "unreadable"

// Classes is what one tenant's policy says of records, and what is to be done
// while it cannot be read. It does not change and may be shared.
type Classes struct {
	policy        *Policy // nil: it cannot be read
	fallbackClass Class   // then: the class of all sessions
	err           error
}

// ReadClasses reads a policy's classes. revisions are its texts, the newest first,
// nil where it was removed. If the newest cannot be read, the strictest class that
// the last readable one named holds for all sessions; if none can be read, None:
// nobody knows what it said.
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

// Err is why the policy cannot be read.
func (c Classes) Err() error { return c.err }

// ClassOf is the class of a session and the id of the policy that says so.
func (c Classes) ClassOf(session string) (Class, string) {
	if c.policy != nil {
		return c.policy.Class(session), c.policy.ID()
	}
	return c.fallbackClass, Unreadable
}
