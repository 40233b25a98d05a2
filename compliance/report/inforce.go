package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/compliance/inforce"
)

// Limits of the texts on a page; the bundle has the rest.
const (
	maxStates     = 60
	maxLines      = 400 // of one document
	maxLine       = 400 // characters
	maxPageOfText = 400_000
)

// stateView is one state of the set of policies.
type stateView struct {
	Title string
	Facts []pair
	Texts []textView
}

// textView is one document.
type textView struct {
	Name, Note string
	Lines      []string
}

// inForceViews shows the policies and mandates that decided or were in force, with their texts.
func (b *Builder) inForceViews() (list []stateView, mandates []textView) {
	if b.inForce == nil {
		return nil, nil
	}
	room := maxPageOfText
	for i, p := range b.inForce.Policies {
		if i == maxStates {
			list = append(list, stateView{Title: fmt.Sprintf("and %d more", len(b.inForce.Policies)-i), Facts: []pair{{"Where", "in in_force.json"}}})
			break
		}
		list = append(list, newStateView(p, &room))
	}
	for _, m := range b.inForce.Mandates {
		t := textView{Name: fmt.Sprintf("Mandate %s, hash %s, named by %s", shortVisible(m.ID), shortVisible(m.Hash), decidedText(m.Use)), Note: textNote(m.Text, m.Why, 0)}
		if m.Document != "" {
			t.Lines = linesOf(m.Document, &room)
		}
		mandates = append(mandates, t)
	}
	return list, mandates
}

func newStateView(p inforce.Policy, room *int) stateView {
	v := stateView{Title: fmt.Sprintf("Revision %d", p.Revision), Facts: []pair{{"Digest", cmp.Or(shortVisible(p.Digest), "none")}, {"Gave", decidedText(p.Use)}}}
	add := func(name, value string) {
		if value != "" {
			v.Facts = append(v.Facts, pair{name, value})
		}
	}
	if p.Seq > 0 {
		add("In force from", fmt.Sprintf("%s UTC, sequence %d", formatEventTime(p.At), p.Seq))
	}
	add("Pushed by", longVisible(p.Author))
	add("They say", longVisible(p.Message))
	if p.Error != "" {
		add("Could not be used", longVisible(p.Error)+" (everything was denied)")
	}
	if text := textNote(p.Text, p.Why, p.Withheld); p.Text == inforce.TextComplete && p.Use.Decisions == 0 {
		add("Text", text+"; no record here names this digest: that this was in force is the exporter's word")
	} else {
		add("Text", text)
	}
	for _, d := range p.Documents {
		t := textView{Name: shortVisible(d.Name), Lines: linesOf(d.Text, room)}
		if len(d.Redacted) > 0 {
			t.Note = "Redacted in it: " + longVisible(strings.Join(d.Redacted, ", ")) + "."
		}
		v.Texts = append(v.Texts, t)
	}
	return v
}

func decidedText(u inforce.Use) string {
	if u.Decisions == 0 {
		return "no verdict here"
	}
	if u.First == u.Last {
		return fmt.Sprintf("%s here, sequence %d", countWord(u.Decisions, "verdict"), u.First)
	}
	return fmt.Sprintf("%s here, sequences %d to %d", countWord(u.Decisions, "verdict"), u.First, u.Last)
}

func textNote(text, why string, withheld int) string {
	note := cmp.Or(map[string]string{inforce.TextComplete: "complete; it gives the digest", inforce.TextMissing: "not here"}[text], "in part, not proved")
	if why != "" {
		note += ": " + longVisible(why)
	}
	if withheld > 0 {
		note += " (" + countWord(withheld, "document") + " withheld)"
	}
	return note
}

// linesOf makes a text visible line by line.
func linesOf(text string, room *int) (lines []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if *room -= len(line) + 1; *room < 0 || len(lines) >= maxLines {
			return append(lines, "… the rest is in in_force.json")
		}
		lines = append(lines, strings.ReplaceAll(visible(line, maxLine), "⟨U+0009⟩", "    "))
	}
	return lines
}
