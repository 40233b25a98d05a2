// Package correlate has the commands that apply the rules of correlation: check applies them to a
// recording, conformance to a publisher, replay to a recorded session; rules lists and switches
// them. Each command is a type with a Run method, which the command line's parser (kong) calls.
package correlate

import (
	"context"
	"fmt"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// CheckCmd is `countersign check`.
type CheckCmd struct {
	Protocol string `help:"Protocol of the recording: aaep or agenthook." required:""`
	Now      string `help:"How far time passed after the recording, RFC 3339: deadlines up to it fire (default: not at all)." placeholder:"TIME"`
	Fail     bool   `help:"Exit 1 when a finding above level info was made."`
	File     string `arg:"" help:"A JSON array or JSON Lines of events in log order; {\"decision\": {...}} may stand between them. - for standard input."`
}

// checkLine is one finding in the JSON output.
type checkLine struct {
	Rule        string          `json:"rule"`
	Severity    events.Severity `json:"severity"`
	EventIDs    []string        `json:"event_ids"`
	Explanation string          `json:"explanation"`
}

func (c *CheckCmd) Run(_ context.Context, io ui.Stdio) error {
	o := correlation.CheckOptions{}
	if c.Now != "" {
		var err error
		if o.Now, err = ui.ParseNow(c.Now); err != nil {
			return ui.UsageError{Err: err}
		}
	}
	input, err := ui.ReadInput(io, c.File)
	if err != nil {
		return err
	}
	recording, err := correlation.ParseRecording(input)
	if err != nil {
		return ui.UsageError{Err: fmt.Errorf("%s: %w", c.File, err)}
	}
	if len(recording) == 0 && c.Fail {
		return ui.UsageError{Err: fmt.Errorf("%s holds no event: that nothing is found in it is no good news", c.File)}
	}
	if len(recording) == 0 {
		fmt.Fprintf(io.Err, "countersign: %s holds no event\n", ui.Clean(c.File, 120))
	}
	findings, err := correlation.Check(c.Protocol, recording, o)
	if err != nil {
		return ui.UsageError{Err: err}
	}
	violated := false
	for _, f := range findings {
		violated = violated || f.Severity != events.SeverityInfo
		ids := f.EventIDs
		if ids == nil {
			ids = []string{}
		}
		if err := ui.WriteJSON(io, checkLine{f.Rule, f.Severity, ids, f.Explanation}); err != nil {
			return err
		}
	}
	if c.Fail && violated {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}
