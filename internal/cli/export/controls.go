package export

import (
	"fmt"
	"io"
	"strings"

	"github.com/countersign-dev/countersign/compliance/controls"
	"github.com/countersign-dev/countersign/internal/cli/ui"
)

// ControlsCmd is `countersign controls`.
type ControlsCmd struct {
	List controlsListCmd `cmd:"" help:"List the controls of common frameworks that the index goes through, gaps included."`
	Show controlsShowCmd `cmd:"" help:"Show what the evidence shows about one control, and what it does not."`
}

type controlsListCmd struct {
	Framework string `help:"Only those of a framework (eu-ai-act, soc2, iso-42001, aisvs, nist-ai-rmf)." enum:"eu-ai-act,soc2,iso-42001,aisvs,nist-ai-rmf," default:""`
	JSON      bool   `name:"json" help:"One JSON object a line."`
}

func (c *controlsListCmd) Run(io ui.Stdio) error {
	index := controls.All()
	var list []controls.Entry
	for _, e := range index.Entries {
		if c.Framework == "" || e.Framework == c.Framework {
			list = append(list, e)
		}
	}
	if c.JSON {
		return ui.WriteJSONLines(io.Out, list)
	}
	var t ui.Listing
	for _, e := range list {
		t.Row(e.ID, string(e.Coverage), e.Title)
	}
	if err := t.Print(io.Out); err != nil {
		return err
	}
	_, err := fmt.Fprintf(io.Out, "\n%s\n", index.Disclaimer)
	return err
}

type controlsShowCmd struct {
	ID   string `arg:"" help:"As the list has it: 'soc2:CC6.1', 'eu-ai-act:Art. 12(1)'."`
	JSON bool   `name:"json" help:"As JSON."`
}

func (c *controlsShowCmd) Run(io ui.Stdio) error {
	e, found := controls.Find(c.ID)
	if !found {
		return ui.UsageError{Err: fmt.Errorf("there is no control %.60q in the index; \"countersign controls list\" has them all", c.ID)}
	}
	if c.JSON {
		return ui.WriteJSONLines(io.Out, []controls.Entry{e})
	}
	return printControl(io.Out, e)
}

func printControl(out io.Writer, e controls.Entry) error {
	index := controls.All()
	fmt.Fprintf(out, "%s: %s\n", e.ID, e.Title)
	for _, f := range index.Frameworks {
		if f.ID == e.Framework {
			fmt.Fprintf(out, "%s; of it: %s\n", f.Title, f.Covered)
		}
	}
	fmt.Fprintf(out, "coverage: %s\n", e.Coverage)
	lists := []struct {
		head  string
		items []string
	}{
		{"The evidence shows", e.Shows}, {"Control records of the log show, which are in no bundle", e.ShowsOnLog}, {"It does not show", e.DoesNotShow},
		{"From", from(e.From)},
	}
	for _, l := range lists {
		if len(l.items) > 0 {
			fmt.Fprintf(out, "\n%s\n  - %s\n", l.head, strings.Join(l.items, "\n  - "))
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n", index.Disclaimer)
	return err
}

func from(f controls.From) (list []string) {
	for _, part := range []struct {
		what  string
		names []string
	}{
		{"records of kind", f.Kinds}, {"control records of kind", f.Control}, {"findings of our rules", f.Rules}, {"findings of the checks", f.Checks}, {"what verification reports as", f.Problems},
	} {
		if len(part.names) > 0 {
			list = append(list, part.what+" "+strings.Join(part.names, ", "))
		}
	}
	return list
}
