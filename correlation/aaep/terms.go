package aaep

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/aaep"
)

// capabilities are the terms of a subscription that can be exceeded (AAEP 5.4.4). An absent
// term is not compared.
type capabilities struct {
	eventsPerSecond int64 // events per second; 0 if absent
	languages       []string
	boundaries      []string
	levels          []string
	extensions      []string
	filters         *eventFilters

	mayConfirm, mayClarify, signedOnly optionalFlag
}

// optionalFlag is a flag that may be absent.
type optionalFlag uint8

const (
	flagAbsent optionalFlag = iota
	flagFalse
	flagTrue
)

type eventFilters struct{ include, exclude []string }

// maxCapabilityBytes bounds each list of terms, in bytes. A longer list is not compared.
const maxCapabilityBytes = 2048

func newCapabilities(v any) capabilities {
	m, _ := v.(map[string]any)
	t := capabilities{
		languages: parseList(m["languages"]), boundaries: parseList(m["coalesce_boundaries"]),
		levels: parseList(m["supported_conformance_levels"]), extensions: parseList(m["supported_extensions"]),
		mayConfirm: parseFlag(m["supports_confirmation_reply"]), mayClarify: parseFlag(m["supports_clarification_reply"]),
		signedOnly: parseFlag(m["accept_signed_manifests_only"]),
	}
	if n, ok := m["max_events_per_second"].(json.Number); ok {
		t.eventsPerSecond, _ = n.Int64()
	}
	if f, ok := m["event_filters"].(map[string]any); ok {
		t.filters = newFilters(f)
	}
	return t
}

func parseFlag(v any) optionalFlag {
	switch v {
	case true:
		return flagTrue
	case false:
		return flagFalse
	}
	return flagAbsent
}

// parseList parses a list of texts or numbers; nil if it is invalid or too long.
func parseList(v any) []string {
	items, _ := v.([]any)
	var list []string
	size := 0
	for _, item := range items {
		s := ""
		switch item := item.(type) {
		case string:
			s = item
		case json.Number:
			s = item.String()
		default:
			return nil
		}
		if size += len(s) + 16; size > maxCapabilityBytes {
			return nil
		}
		list = append(list, strings.Clone(s))
	}
	return list
}

// newFilters parses event filters; nil if they have parts that are not compared.
func newFilters(m map[string]any) *eventFilters {
	f := &eventFilters{include: []string{"aaep:agent.*"}}
	if v, there := m["include"]; there {
		if f.include = parseList(v); f.include == nil {
			return nil
		}
	}
	if v, there := m["exclude"]; there {
		if f.exclude = parseList(v); f.exclude == nil {
			if items, ok := v.([]any); !ok || len(items) > 0 {
				return nil
			}
		}
	}
	return f
}

// passesType reports whether a filter passes a type of event. exclude counts before include
// (A-23 of the digest).
func (f *eventFilters) passesType(kind string) bool {
	fits := func(pattern string) bool {
		pattern = aaep.NormaliseType(pattern)
		start, open := strings.CutSuffix(pattern, "*")
		return pattern == kind || open && strings.HasPrefix(kind, start)
	}
	return slices.ContainsFunc(f.include, fits) && !slices.ContainsFunc(f.exclude, fits)
}

// filterableTypes are the core events that a filter may hold back. Critical events pass every
// filter (AAEP 5.5.4).
var filterableTypes = []string{
	aaep.TypeSessionStarted, aaep.TypeSessionCompleted, aaep.TypeSessionCancelled, aaep.TypeStateChanged,
	aaep.TypeProgressUpdated, aaep.TypeToolInvoked, aaep.TypeToolCompleted, aaep.TypeOutputStreaming,
}

// excessOver describes how granted terms exceed the requested ones; "" if they do not.
func (granted capabilities) excessOver(asked capabilities) string {
	looser := func(kind string) bool { return granted.filters.passesType(kind) && !asked.filters.passesType(kind) }
	switch {
	case asked.eventsPerSecond > 0 && granted.eventsPerSecond > asked.eventsPerSecond:
		return "more events a second"
	case asked.languages != nil && !isSubset(granted.languages, asked.languages, sameLanguage):
		return "other languages"
	case asked.boundaries != nil && !isSubset(granted.boundaries, asked.boundaries, sameText):
		return "other boundaries"
	case asked.levels != nil && !isSubset(granted.levels, asked.levels, sameText):
		return "other levels"
	case asked.extensions != nil && !isSubset(granted.extensions, asked.extensions, sameText):
		return "other extensions"
	case asked.filters != nil && granted.filters != nil && slices.ContainsFunc(filterableTypes, looser):
		return "looser filters"
	case asked.mayConfirm == flagFalse && granted.mayConfirm == flagTrue, asked.mayClarify == flagFalse && granted.mayClarify == flagTrue:
		return "replies"
	case asked.signedOnly == flagTrue && granted.signedOnly == flagFalse:
		return "manifests without a signature"
	}
	return ""
}

func isSubset(granted, asked []string, like func(a, b string) bool) bool {
	return !slices.ContainsFunc(granted, func(g string) bool {
		return !slices.ContainsFunc(asked, func(a string) bool { return like(g, a) })
	})
}

func sameText(a, b string) bool { return a == b }

// sameLanguage reports whether two tags are of one language, in any variant.
func sameLanguage(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || strings.HasPrefix(a, b+"-") || strings.HasPrefix(b, a+"-")
}
