package retention

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictyaml"
)

// ErrPolicy says that a text is not a retention policy.
var ErrPolicy = errors.New("not a retention policy")

// Limits of a policy.
const (
	MaxBytes    = 64 << 10
	maxSessions = 100
	maxPattern  = 256
)

// Period is how long something is kept; 0 means for ever.
type Period time.Duration

// minPeriod is the shortest period, because a session must be over before it is erased.
const minPeriod = time.Hour

var periodForm = regexp.MustCompile(`^([1-9][0-9]{0,4})([hdw])$`)

// UnmarshalText parses "36h", "90d" or "12w".
func (p *Period) UnmarshalText(b []byte) error {
	m := periodForm.FindSubmatch(b)
	if m == nil {
		return fmt.Errorf("%.20q is no period: want a number with h, d or w, such as 90d", b)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return err
	}
	unit := map[string]time.Duration{"h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[string(m[2])]
	if d := time.Duration(n) * unit; d < minPeriod || d/unit != time.Duration(n) {
		return fmt.Errorf("%.20q is out of range", b)
	} else {
		*p = Period(d)
	}
	return nil
}

// Ever is the text of a period without an end.
const Ever = "ever"

// String formats a period in the largest unit that divides it.
func (p Period) String() string {
	d := time.Duration(p)
	switch {
	case d == 0:
		return Ever
	case d%(7*24*time.Hour) == 0:
		return fmt.Sprintf("%dw", d/(7*24*time.Hour))
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
	return fmt.Sprintf("%dh", d/time.Hour)
}

type sessionRule struct {
	Match string `yaml:"match"` // a session; * at the end matches any text
	Log   Period `yaml:"log"`
	Keep  bool   `yaml:"keep"` // keep for ever
	// Evidence is how long the texts of a session are kept after its newest record.
	Evidence Period `yaml:"evidence"`
	// Retention is the class of its messages in evidence.
	Retention Class `yaml:"retention"`
}

// Policy is a tenant's retention policy. It is immutable and may be shared.
type Policy struct {
	id   string
	text struct {
		Version     int    `yaml:"version"`
		Name        string `yaml:"name"`
		Description string `yaml:"description"`
		// Log is how long a session's bytes and key are kept after its newest record.
		Log Period `yaml:"log"`
		// Evidence is how long the texts of a session's evidence are kept after its newest record;
		// hashes are kept for ever.
		Evidence Period `yaml:"evidence"`
		// Quarantine is how long bytes without a record are kept in quarantine.
		Quarantine Period `yaml:"quarantine"`
		// Retention is the class of messages in evidence.
		Retention Class         `yaml:"retention"`
		Sessions  []sessionRule `yaml:"sessions"`
	}
}

var nameForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,39}$`)

// Parse parses a policy; an unknown key is an error. file is the name of the text in errors.
func Parse(file string, text []byte) (*Policy, error) {
	p := &Policy{}
	if _, err := strictyaml.Documents(file, text, MaxBytes, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&p.text); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPolicy, file, err)
	}
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrPolicy, file, err)
	}
	sum := sha256.Sum256(text)
	p.id = p.text.Name + "@" + hex.EncodeToString(sum[:8])
	return p, nil
}

func (p *Policy) validate() error {
	t := &p.text
	switch {
	case t.Version != 1:
		return errors.New("version must be 1")
	case !nameForm.MatchString(t.Name):
		return errors.New("name must be a-z 0-9 - _, at most 40 characters")
	case len(t.Sessions) > maxSessions:
		return fmt.Errorf("sessions must be at most %d", maxSessions)
	}
	for i, s := range t.Sessions {
		switch body, _ := strings.CutSuffix(s.Match, "*"); {
		case s.Match == "" || len(s.Match) > maxPattern || strings.Contains(body, "*"):
			return fmt.Errorf("sessions[%d]: match must be a session, with * at its end at most", i)
		}
		if err := s.validate(); err != nil {
			return fmt.Errorf("sessions[%d]: %w", i, err)
		}
	}
	return p.checkEvidence()
}

// ID identifies the text of the policy: "<name>@<16 hexadecimal digits of its SHA-256>".
func (p *Policy) ID() string { return p.id }

// LogPeriod is how long a session's bytes and key are kept after its newest record, 0 for ever. It
// is that of the first entry that matches the session and sets log or keep, otherwise the
// tenant's period.
func (p *Policy) LogPeriod(session string) time.Duration {
	for _, s := range p.text.Sessions {
		if (s.Log > 0 || s.Keep) && matchesSession(s.Match, session) {
			return time.Duration(s.Log)
		}
	}
	return time.Duration(p.text.Log)
}

// QuarantinePeriod is how long bytes are kept in quarantine; 0 means as long as the stream keeps
// them.
func (p *Policy) QuarantinePeriod() time.Duration { return time.Duration(p.text.Quarantine) }

// ShortestLog is the shortest log period of any session, or 0 if there is none.
func (p *Policy) ShortestLog() time.Duration {
	shortest := p.text.Log
	for _, s := range p.text.Sessions {
		if s.Log > 0 && (shortest == 0 || s.Log < shortest) {
			shortest = s.Log
		}
	}
	return time.Duration(shortest)
}

// checkEvidence rejects a period of evidence that is shorter than that of the log. The log holds the
// full bytes and evidence only a redacted copy, so such a period is a mistake.
func (p *Policy) checkEvidence() error {
	t := &p.text
	if t.Evidence > 0 && t.Log > t.Evidence {
		return fmt.Errorf("evidence: %s is shorter than log: %s; evidence must be kept at least as long as the log", t.Evidence, t.Log)
	}
	for i, s := range t.Sessions {
		log, evidence := cmp.Or(s.Log, t.Log), cmp.Or(s.Evidence, t.Evidence)
		if s.Log == 0 && s.Evidence == 0 || evidence == 0 || log <= evidence {
			continue
		}
		return fmt.Errorf("sessions[%d]: evidence: %s is shorter than log: %s (what the entry does not say, the tenant's own periods do); evidence must be kept at least as long as the log", i, evidence, log)
	}
	return nil
}

// EvidencePeriod is how long the texts of a session's evidence are kept after its newest record, 0
// for ever. It is that of the first entry that matches the session and sets evidence or keep,
// otherwise the tenant's period, and never shorter than the log period.
func (p *Policy) EvidencePeriod(session string) time.Duration {
	period := p.text.Evidence
	for _, s := range p.text.Sessions {
		if (s.Evidence > 0 || s.Keep) && matchesSession(s.Match, session) {
			period = s.Evidence
			break
		}
	}
	if period == 0 {
		return 0
	}
	return max(time.Duration(period), p.LogPeriod(session))
}

// ShortestEvidence is the shortest evidence period of any session, or 0 if there is none.
func (p *Policy) ShortestEvidence() time.Duration {
	shortest := p.text.Evidence
	for _, s := range p.text.Sessions {
		if s.Evidence > 0 && (shortest == 0 || s.Evidence < shortest) {
			shortest = s.Evidence
		}
	}
	return time.Duration(shortest)
}

// PeriodRule is one evidence period of a policy and the sessions it applies to; Match is "" for the
// tenant's default.
type PeriodRule struct {
	Match  string `json:"match,omitempty"`
	Period string `json:"period"` // or "ever"
}

// EvidenceRules lists the evidence periods of the policy in the order of precedence. It is empty if
// all evidence is kept for ever.
func (p *Policy) EvidenceRules() (list []PeriodRule) {
	if p.ShortestEvidence() == 0 {
		return nil
	}
	for _, s := range p.text.Sessions {
		if s.Evidence > 0 || s.Keep {
			list = append(list, PeriodRule{s.Match, s.Evidence.String()})
		}
	}
	return append(list, PeriodRule{Period: p.text.Evidence.String()})
}

func matchesSession(pattern, session string) bool {
	if head, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(session, head)
	}
	return pattern == session
}
