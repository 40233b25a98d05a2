package admin

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
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

type redactionTestCmd struct {
	Policy   string   `help:"The tenant's policy; without it the built-in rules mask everything that is found." placeholder:"FILE"`
	Protocol string   `help:"Protocol of the event: what it must never store is taken out, too." default:"agenthook"`
	Header   []string `help:"A header of the message, NAME:VALUE; may be given several times." sep:"none" placeholder:"NAME:VALUE"`
	JSON     bool     `name:"json" help:"Print one JSON object."`
	File     string   `arg:"" help:"The event (JSON), - for standard input."`
}

func (c *redactionTestCmd) Run(io ui.Stdio) error {
	if !slices.Contains(subject.Protocols, c.Protocol) {
		return ui.UsageError{Err: fmt.Errorf("--protocol must be one of %s", strings.Join(subject.Protocols, ", "))}
	}
	policy := redaction.Builtin()
	if c.Policy != "" {
		var err error
		if policy, _, err = redactionPolicy.read(io, c.Policy); err != nil {
			return err
		}
	}
	body, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	header := map[string][]string{}
	for _, h := range c.Header {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return ui.UsageError{Err: fmt.Errorf("--header must be NAME:VALUE, not %q", ui.Clean(name, 40))}
		}
		header[name] = append(header[name], strings.TrimSpace(value))
	}
	rec, err := tryRedaction(policy, c.Protocol, header, body)
	if err != nil {
		return err
	}
	if c.JSON {
		return ui.WriteJSON(io, redactionResult{policy.ID(), rec.Body, rec.Headers, rec.Redactions, rec.Reason})
	}
	printRedaction(ui.NewPrinter(io.Out), policy, rec)
	return nil
}

type redactionResult struct {
	Policy     string               `json:"policy"`
	Body       json.RawMessage      `json:"body"`
	Headers    map[string][]string  `json:"headers"`
	Redactions []evidence.Redaction `json:"redactions"`
	Reason     string               `json:"reason,omitempty"`
}

// tryRedaction makes the record that the auditor would make, with temporary keys: its digests and
// commitments are meaningless.
func tryRedaction(policy *redaction.Policy, protocol string, header map[string][]string, body []byte) (evidence.Record, error) {
	b, err := build.NewBuilder("TEST", subject.Space{})
	if err != nil {
		return evidence.Record{}, err
	}
	b = b.WithPolicies(func(string) (*redaction.Policy, error) { return policy, nil })
	keys := make(build.OneKey, digest.KeySize)
	if _, err := rand.Read(keys); err != nil {
		return evidence.Record{}, err
	}
	m := events.LogMessage{Seq: 1, Time: time.Now(), Subject: subject.Space{}.Event("test", "test", protocol, "", "test"), Header: header, Body: body}
	built, err := b.Build(m, evidence.Head{}, keys)
	return built.Record, err
}

func printRedaction(p *ui.Printer, policy *redaction.Policy, rec evidence.Record) {
	if rec.Reason != "" {
		p.Printf("%s the body would be withheld: %s\n", p.Paint(ui.Red, "withheld"), rec.Reason)
	}
	for _, r := range rec.Redactions {
		rule := strings.TrimPrefix(strings.TrimPrefix(r.Policy, policy.ID()), "/")
		if rule != "" {
			rule = "by rule " + rule
		}
		p.Printf("%-10s %-24s %s %s\n", r.Action, r.Detector, ui.Clean(r.Path, 200), p.Paint(ui.Faint, rule))
	}
	if len(rec.Redactions) == 0 && rec.Reason == "" {
		p.Printf("nothing would be redacted (policy %s)\n", policy.ID())
	}
	if rec.Reason == "" {
		p.Printf("%s\n", ui.Clean(string(rec.Body), len(rec.Body)))
	}
}
