package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/conformance"
	"github.com/countersign-dev/countersign/events/agenthook"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/schemas"
)

// excused are the event types that the publisher says its runtime does not
// expose.
func (c *conformanceCmd) excused() (map[string]bool, error) {
	list := map[string]bool{}
	for _, typ := range c.NotExposed {
		if !agenthook.IsKnownType(typ) {
			return nil, usageError{fmt.Errorf("--not-exposed %.60q is no event type of AgentHook", typ)}
		}
		list[typ] = true
	}
	if c.Manifest == "" {
		return list, nil
	}
	b, err := os.ReadFile(c.Manifest)
	if err != nil {
		return nil, usageError{fmt.Errorf("reading the manifest: %w", err)}
	}
	tree, err := strictjson.ParseObject(b, strictjson.DefaultLimits)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", c.Manifest, err)}
	}
	if wrong := schemas.Default().Validate("agenthook/publisher-manifest", tree); len(wrong) > 0 {
		return nil, usageError{fmt.Errorf("%s is no publisher manifest: %s %s", c.Manifest, wrong[0].Path, wrong[0].Message)}
	}
	var doc manifestEvents
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", c.Manifest, err)}
	}
	for typ, state := range doc.AgentHook.Events {
		if notExposed(state) {
			list[typ] = true
		}
	}
	return list, nil
}

// errNobody: there is nothing to judge, which is not the same as nothing wrong.
var errNobody = errors.New("nothing was published that could be judged: no events of this publisher, session or protocol are on record")

func (c *conformanceCmd) report(io stdio, tally *conformance.Tally, profiles []conformance.Profile, excused excuses) error {
	p := newPrinter(io.out)
	failed, any := false, false
	for _, profile := range profiles {
		for _, subject := range c.subjects(tally, profile.Protocol) {
			any = true
			if c.Profile == "" && !tally.Claims(profile, subject) {
				continue
			}
			r := tally.Report(profile, subject, excused.of(subject.Source))
			failed = failed || r.Outcome == conformance.NotMet
			if c.JSON {
				if err := compactJSON(io, r); err != nil {
					return err
				}
				continue
			}
			c.print(p, r)
		}
	}
	if !any {
		return errNobody
	}
	if !c.JSON {
		p.printf("%s\n", p.paint(faint, "Checked against the published texts, from the log alone. This is no certification."))
	}
	if idle := excused.idle(); len(idle) > 0 {
		fmt.Fprintf(io.err, "countersign: excused nobody in this report: %s; a manifest counts for the publisher that it is registered for, or that has its publisher_id or source as its name\n",
			clean(strings.Join(idle, ", "), 400))
	}
	if c.Fail && failed {
		return exitCode(exitFailed)
	}
	return nil
}

// subjects are whom the reports are about.
func (c *conformanceCmd) subjects(tally *conformance.Tally, protocol string) (list []conformance.Subject) {
	for _, publisher := range tally.Publishers(protocol) {
		if c.Publisher != "" && publisher.Source != c.Publisher {
			continue
		}
		sessions := tally.Sessions(protocol, publisher.Source)
		switch {
		case c.Session != "":
			i := slices.IndexFunc(sessions, func(s conformance.Subject) bool {
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

var outcomeColour = map[conformance.Outcome]string{conformance.Met: green, conformance.NotMet: red, conformance.NotShown: yellow,
	conformance.Held: green, conformance.Broken: red, conformance.NotExercised: faint, conformance.Undecidable: faint, conformance.Excused: faint}

// wordOf writes an outcome for people.
func wordOf(o conformance.Outcome) string { return strings.ReplaceAll(string(o), "_", " ") }

// print writes a report: what is broken always, the rest where one profile was
// asked for.
func (c *conformanceCmd) print(p *printer, r conformance.Report) {
	who := "publisher " + clean(or(r.Source, "(unknown)"), 60)
	switch {
	case r.Session != "":
		who += ", session " + clean(r.Session, 60)
	case r.Sessionless:
		who += ", events without a session"
	}
	p.printf("%s  %s  %s\n", p.paint(outcomeColour[r.Outcome], pad(wordOf(r.Outcome), 9)), p.paint(bold, r.CheckedAgainst), p.paint(faint, who))
	s := r.Score
	p.printf("           held %d of %d, of which %d %% must hold: %d broken, %d not exercised, %d undecidable, %d excused\n",
		s.Held, s.Total-s.Excused, r.Percent, s.Broken, s.NotExercised, s.Undecidable, s.Excused)
	if r.Includes != nil {
		p.printf("           takes %s, too: %s\n", r.Includes.CheckedAgainst, p.paint(outcomeColour[r.Includes.Outcome], wordOf(r.Includes.Outcome)))
	}
	for _, l := range r.Lines {
		if l.Outcome == conformance.Broken || c.Profile != "" {
			c.line(p, l)
		}
	}
	p.printf("\n")
}

func (c *conformanceCmd) line(p *printer, l conformance.Line) {
	p.printf("  %s  %s  %s\n", p.paint(outcomeColour[l.Outcome], pad(wordOf(l.Outcome), 13)), pad(l.ID, 20), l.Text)
	detail := ""
	switch l.Outcome {
	case conformance.Broken:
		detail = fmt.Sprintf("%s: %s", strings.Join(l.Broke, ", "), plural(l.Count, "time"))
		if len(l.Seqs) > 0 {
			detail += ", proved by " + sequences(l.Seqs)
		}
	case conformance.Held:
		detail = fmt.Sprintf("%d %s", l.Judged, l.What)
	case conformance.NotExercised, conformance.Undecidable:
		detail = or(l.Reason, "no "+l.What)
	}
	if l.Partial {
		detail += "; a session was too large to remember all of it"
	}
	if detail != "" {
		p.wrapped(39, "", detail, faint)
	}
}
