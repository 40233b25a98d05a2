package correlate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/correlation/conformance/profile"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/ui"
	"github.com/countersign-dev/countersign/schemas"
)

// excused returns the event types that are declared as not exposed.
func (c *ConformanceCmd) excused() (map[string]bool, error) {
	list := map[string]bool{}
	for _, typ := range c.NotExposed {
		if !agenthook.IsKnownType(typ) {
			return nil, ui.UsageError{Err: fmt.Errorf("--not-exposed %.60q is no event type of AgentHook", typ)}
		}
		list[typ] = true
	}
	if c.Manifest == "" {
		return list, nil
	}
	b, err := os.ReadFile(c.Manifest)
	if err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("reading the manifest: %w", err)}
	}
	manifest, err := strictjson.ReadObject(b, strictjson.DefaultLimits)
	if err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("%s: %w", c.Manifest, err)}
	}
	if wrong := schemas.Default().Validate("agenthook/publisher-manifest", manifest); len(wrong) > 0 {
		return nil, ui.UsageError{Err: fmt.Errorf("%s is no publisher manifest: %s %s", c.Manifest, wrong[0].Path, wrong[0].Message)}
	}
	var doc manifestEvents
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, ui.UsageError{Err: fmt.Errorf("%s: %w", c.Manifest, err)}
	}
	for typ, state := range doc.AgentHook.Events {
		if notExposed(state) {
			list[typ] = true
		}
	}
	return list, nil
}

// errNobody reports that there is nothing to judge, which is not the same as no finding.
var errNobody = errors.New("nothing was published that could be judged: no events of this publisher, session or protocol are on record")

func (c *ConformanceCmd) report(io ui.Stdio, tally *conformance.Tally, profiles []profile.Profile, excused excuses) error {
	p := ui.NewPrinter(io.Out)
	failed, printed := false, false
	for _, profile := range profiles {
		for _, subject := range c.subjects(tally, profile.Protocol) {
			printed = true
			if c.Profile == "" && !tally.Claims(profile, subject) {
				continue
			}
			r := tally.Report(profile, subject, excused.of(subject.Publisher))
			failed = failed || r.Outcome == conformance.NotMet
			if c.JSON {
				if err := ui.WriteJSON(io, r); err != nil {
					return err
				}
				continue
			}
			c.print(p, r)
		}
	}
	if !printed {
		return errNobody
	}
	if !c.JSON {
		p.Printf("%s\n", p.Paint(ui.Faint, "Checked against the published texts, from the log alone. This is no certification."))
	}
	if idle := excused.idle(); len(idle) > 0 {
		fmt.Fprintf(io.Err, "countersign: excused no publisher in this report: %s; a manifest counts for the publisher that it is registered for, or that has its publisher_id or source as its name\n",
			ui.Clean(strings.Join(idle, ", "), 400))
	}
	if c.Fail && failed {
		return ui.ExitCode(ui.ExitFailed)
	}
	return nil
}

// subjects lists the publishers and sessions to report on.
func (c *ConformanceCmd) subjects(tally *conformance.Tally, protocol string) (list []conformance.Judged) {
	for _, publisher := range tally.Publishers(protocol) {
		if c.Publisher != "" && publisher.Publisher != c.Publisher {
			continue
		}
		sessions := tally.Sessions(protocol, publisher.Publisher)
		switch {
		case c.Session != "":
			i := slices.IndexFunc(sessions, func(s conformance.Judged) bool {
				return subject.TokenValue(s.Session) == subject.TokenValue(c.Session)
			})
			if i >= 0 {
				list = append(list, sessions[i])
			}
		case c.Sessions:
			list = append(append(list, publisher), sessions...)
		default:
			list = append(list, publisher)
		}
	}
	return list
}

var outcomeColour = map[conformance.Outcome]string{conformance.Met: ui.Green, conformance.NotMet: ui.Red, conformance.NotShown: ui.Yellow,
	conformance.Held: ui.Green, conformance.Broken: ui.Red, conformance.NotExercised: ui.Faint, conformance.Undecidable: ui.Faint, conformance.Excused: ui.Faint}

// wordOf formats an outcome for display.
func wordOf(o conformance.Outcome) string { return strings.ReplaceAll(string(o), "_", " ") }

// print prints a report: what is broken always, the rest if one profile was requested.
func (c *ConformanceCmd) print(p *ui.Printer, r conformance.Report) {
	who := "publisher " + ui.Clean(cmp.Or(r.Publisher, "(unknown)"), 60)
	switch {
	case r.Session != "":
		who += ", session " + ui.Clean(r.Session, 60)
	case r.Sessionless:
		who += ", events without a session"
	}
	p.Printf("%s  %s  %s\n", p.Paint(outcomeColour[r.Outcome], ui.Pad(wordOf(r.Outcome), 9)), p.Paint(ui.Bold, r.CheckedAgainst), p.Paint(ui.Faint, who))
	s := r.Score
	p.Printf("           held %d of %d, of which %d %% must hold: %d broken, %d not exercised, %d undecidable, %d excused\n",
		s.Held, s.Total-s.Excused, r.Percent, s.Broken, s.NotExercised, s.Undecidable, s.Excused)
	if r.Includes != nil {
		p.Printf("           takes %s, too: %s\n", r.Includes.CheckedAgainst, p.Paint(outcomeColour[r.Includes.Outcome], wordOf(r.Includes.Outcome)))
	}
	for _, l := range r.Results {
		if l.Outcome == conformance.Broken || c.Profile != "" {
			c.line(p, l)
		}
	}
	p.Printf("\n")
}

func (c *ConformanceCmd) line(p *ui.Printer, l conformance.RequirementResult) {
	p.Printf("  %s  %s  %s\n", p.Paint(outcomeColour[l.Outcome], ui.Pad(wordOf(l.Outcome), 13)), ui.Pad(l.ID, 20), l.Text)
	detail := ""
	switch l.Outcome {
	case conformance.Broken:
		detail = fmt.Sprintf("%s: %s", strings.Join(l.Broke, ", "), ui.Plural(l.Count, "time"))
		if len(l.Seqs) > 0 {
			detail += ", proved by " + ui.Sequences(l.Seqs)
		}
	case conformance.Held:
		detail = fmt.Sprintf("%d %s", l.Judged, l.What)
	case conformance.NotExercised, conformance.Undecidable:
		detail = cmp.Or(l.Reason, "no "+l.What)
	}
	if l.Partial {
		detail += "; a session was too large to remember all of it"
	}
	if detail != "" {
		p.Wrapped(39, "", detail, ui.Faint)
	}
}
