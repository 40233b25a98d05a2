package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/redaction"
)

type redactionTestCmd struct {
	Policy   string   `help:"The tenant's policy; without it the built-in rules mask everything that is found." placeholder:"FILE"`
	Protocol string   `help:"Protocol of the event: what it must never store is taken out, too." default:"agenthook"`
	Header   []string `help:"A header of the message, NAME:VALUE; may be given several times." sep:"none" placeholder:"NAME:VALUE"`
	JSON     bool     `name:"json" help:"Print one JSON object."`
	File     string   `arg:"" help:"The event (JSON), - for standard input."`
}

func (c *redactionTestCmd) Run(io stdio) error {
	if !slices.Contains(subject.Protocols, c.Protocol) {
		return usageError{fmt.Errorf("--protocol must be one of %s", strings.Join(subject.Protocols, ", "))}
	}
	policy := redaction.Builtin()
	if c.Policy != "" {
		var err error
		if policy, _, err = readRedaction(io, c.Policy); err != nil {
			return err
		}
	}
	body, err := readInput(io, c.File)
	if err != nil {
		return err
	}
	header := map[string][]string{}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return usageError{fmt.Errorf("--header must be NAME:VALUE, not %q", clean(name, 40))}
		}
		header[name] = append(header[name], strings.TrimSpace(value))
	}
	rec, err := tryRedaction(policy, c.Protocol, header, body)
	if err != nil {
		return err
	}
	if c.JSON {
		return compactJSON(io, redactionResult{policy.ID(), rec.Body, rec.Headers, rec.Redactions, rec.Reason})
	}
	printRedaction(newPrinter(io.out), policy, rec)
	return nil
}

type redactionResult struct {
	Policy     string               `json:"policy"`
	Body       json.RawMessage      `json:"body"`
	Headers    map[string][]string  `json:"headers"`
	Redactions []evidence.Redaction `json:"redactions"`
	Reason     string               `json:"reason,omitempty"`
}

// tryRedaction makes the record that the auditor would make, under keys that are
// thrown away: its digests and commitments are of no use.
func tryRedaction(policy *redaction.Policy, protocol string, header map[string][]string, body []byte) (evidence.Record, error) {
	b, err := evidence.NewBuilder("TEST", subject.Space{})
	if err != nil {
		return evidence.Record{}, err
	}
	b = b.WithPolicies(func(string) (*redaction.Policy, error) { return policy, nil })
	keys := make(throwAway, digest.KeySize)
	if _, err := rand.Read(keys); err != nil {
		return evidence.Record{}, err
	}
	m := events.LogMessage{Seq: 1, Time: time.Now(), Subject: subject.Space{}.Event("test", "test", protocol, "", "test"), Header: header, Body: body}
	built, err := b.Build(m, evidence.Head{}, keys)
	return built.Record, err
}

// throwAway is a key for everything.
type throwAway []byte

func (k throwAway) TenantKey(string) []byte                      { return k }
func (k throwAway) SessionSecret(string, string) ([]byte, error) { return k, nil }

func printRedaction(p *printer, policy *redaction.Policy, rec evidence.Record) {
	if rec.Reason != "" {
		p.printf("%s the body would be withheld: %s\n", p.paint(red, "withheld"), rec.Reason)
	}
	for _, r := range rec.Redactions {
		rule := strings.TrimPrefix(strings.TrimPrefix(r.Policy, policy.ID()), "/")
		if rule != "" {
			rule = "by rule " + rule
		}
		p.printf("%-10s %-24s %s %s\n", r.Action, r.Detector, clean(r.Path, 200), p.paint(faint, rule))
	}
	if len(rec.Redactions) == 0 && rec.Reason == "" {
		p.printf("nothing would be redacted (policy %s)\n", policy.ID())
	}
	if rec.Reason == "" {
		p.printf("%s\n", clean(string(rec.Body), len(rec.Body)))
	}
}
