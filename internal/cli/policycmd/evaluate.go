package policycmd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// EvaluateCmd is `countersign evaluate`.
type EvaluateCmd struct {
	Protocol   string `help:"Protocol of the requests, such as agenthook; an unknown name is answered with the list." required:""`
	Policy     string `help:"Directory of policies; without it the protocol's own evaluator decides alone." placeholder:"DIR"`
	Mandates   string `help:"Directory of AUMP mandates, and of profiles whose keys sign them; without it there are none." placeholder:"DIR"`
	Publishers string `help:"Directory of publisher manifests, registrations and tool catalogues; without it there are none." placeholder:"DIR"`
	Tenant     string `help:"Tenant that the policies are to be matched for." default:"acme"`
	Source     string `help:"Publisher that the policies are to be matched for (default: what the request says of itself)."`
	Now        string `help:"The time of the decision, RFC 3339 (default: now)." placeholder:"TIME"`
	Profile    string `help:"How protocols with a reference of their own (aaep, aana, aump) are read: ${enum}." enum:"hardened,reference-sdk" default:"hardened"`
	Strict     bool   `help:"AAEP: a confirmation must name the call; with the profile reference-sdk, high-risk invocations need one as well."`
	File       string `arg:"" help:"One request, or JSON Lines of {\"request\", \"headers\"?, \"now\"?}; - for standard input."`
}

func (c *EvaluateCmd) Run(_ context.Context, io ui.Stdio) error {
	if !slices.Contains(admission.Protocols(), c.Protocol) {
		return ui.UsageError{Err: fmt.Errorf("--protocol must be one of %s", strings.Join(admission.Protocols(), ", "))}
	}
	now, err := ui.ParseNow(c.Now)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	config := admission.EvaluatorsOnly()
	if c.Policy != "" {
		_, set, err := LoadPolicies(c.Policy)
		if err != nil {
			return ui.UsageError{Err: err}
		}
		config = &admission.Config{Policies: set}
	}
	config.Strict, config.Profile = c.Strict, admission.Profile(c.Profile)
	mandates, err := loadMandates(c.Mandates)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	publishers, err := loadPublishers(c.Publishers)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	input, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	o := admission.Offline{Protocol: c.Protocol, Tenant: c.Tenant, Source: c.Source, Config: config, Now: now, Mandates: mandates, Publishers: publishers}
	for _, line := range requests(input) {
		if _, err := fmt.Fprintf(io.Out, "%s\n", admission.EvaluateLine(line, o)); err != nil {
			return err
		}
	}
	if c.Policy == "" {
		fmt.Fprintln(io.Err, "note: no --policy: the protocol's own evaluator decided alone; a system without policies denies (no_policy)")
	}
	return nil
}

// requests splits the input: JSON Lines, or one request, which may span several lines or be
// unreadable.
func requests(input []byte) []json.RawMessage {
	whole := bytes.TrimSpace(input)
	lines, err := correlation.ParseRecording(whole)
	object := func(l json.RawMessage) bool { return len(l) > 0 && l[0] == '{' && json.Valid(l) }
	if err != nil || json.Valid(whole) || !slices.ContainsFunc(lines, object) {
		return []json.RawMessage{whole}
	}
	return lines
}
