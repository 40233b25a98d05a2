// Package mandatecmd has the command mandate: AUMP mandates and the keys that sign them are put, read,
// revoked and judged. OpenMandates serves other command packages.
package mandatecmd

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/admission/aump"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// Cmd is `countersign mandate`.
type Cmd struct {
	Put      mandatePutCmd      `cmd:"" help:"Put a mandate in force, in the place of an earlier one with its id."`
	Get      mandateGetCmd      `cmd:"" help:"Print a mandate, byte for byte as it was put."`
	List     mandateListCmd     `cmd:"" help:"List the mandates in force, with what they have spent."`
	History  mandateHistoryCmd  `cmd:"" help:"List what was put under an id, by whom and when."`
	Reserved mandateReservedCmd `cmd:"" help:"List the money that is reserved under a mandate, and for which decisions."`
	Revoke   mandateRevokeCmd   `cmd:"" help:"Take a mandate back, for good."`
	Keys     mandateKeysCmd     `cmd:"" help:"The keys that sign mandates, and whether mandates must be signed."`
	Validate mandateValidateCmd `cmd:"" help:"Judge a mandate, or a document that refers to one, offline."`
}

type mandateValidateCmd struct {
	Mandate string `help:"The mandate that evidence, or a reference, is to be compared with." placeholder:"FILE"`
	Now     string `help:"When a mandate is to be usable, RFC 3339 (default: now)." placeholder:"TIME"`
	Kind    string `arg:"" help:"What it is: mandate, profile, evidence, mcp_meta, mcp_tool, a2a_extension, a2a_message or ucp_reference."`
	File    string `arg:"" help:"The document; - for standard input."`
}

// Run prints {"valid", "reason_codes", "errors"} and fails if the document is not valid.
func (c *mandateValidateCmd) Run(io ui.Stdio) error {
	now, err := ui.ParseNow(c.Now)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	if c.File == "-" && c.Mandate == "-" {
		return ui.UsageError{Err: errors.New("only one of the two files can be standard input")}
	}
	doc, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	var against []byte
	if c.Mandate != "" {
		if against, err = ui.ReadInput(io, c.Mandate); err != nil {
			return err
		}
	}
	report, err := aump.Validate(c.Kind, doc, against, now)
	if err != nil {
		return ui.UsageError{Err: fmt.Errorf("mandate validate %s: %w", c.Kind, err)}
	}
	if err := ui.WriteJSON(io, report); err != nil {
		return err
	}
	if !report.Valid {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}
