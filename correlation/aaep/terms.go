package aaep

import (
	"slices"
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
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

func newCapabilities(m strictjson.Value) capabilities {
	t := capabilities{
		languages: parseList(m.Get("languages")), boundaries: parseList(m.Get("coalesce_boundaries")),
		levels: parseList(m.Get("supported_conformance_levels")), extensions: parseList(m.Get("supported_extensions")),
		mayConfirm: parseFlag(m.Get("supports_confirmation_reply")), mayClarify: parseFlag(m.Get("supports_clarification_reply")),
		signedOnly: parseFlag(m.Get("accept_signed_manifests_only")),
	}
	if n := m.Get("max_events_per_second"); n.Kind() == strictjson.KindNumber {
		t.eventsPerSecond, _ = strconv.ParseInt(n.Text(), 10, 64)
	}
	if f := m.Get("event_filters"); f.Kind() == strictjson.KindObject {
		t.filters = newFilters(f)
	}
	return t
}

func parseFlag(v strictjson.Value) optionalFlag {
	switch v.Kind() {
	case strictjson.KindTrue:
		return flagTrue
	case strictjson.KindFalse:
		return flagFalse
	}
	return flagAbsent
}

// parseList reads a list of texts or numbers, nil if it is none or too long.
func parseList(v strictjson.Value) []string {
	if v.Kind() != strictjson.KindArray {
		return nil
	}
	var list []string
	size := 0
	for item := range v.All() {
		if item.Kind() != strictjson.KindString && item.Kind() != strictjson.KindNumber {
			return nil
		}
		if size += len(item.Text()) + 16; size > maxCapabilityBytes {
			return nil
		}
		list = append(list, item.Text())
	}
	return list
}

// newFilters reads event filters, nil if there is more in them than is compared.
func newFilters(m strictjson.Value) *eventFilters {
	f := &eventFilters{include: []string{"aaep:agent.*"}}
	if v := m.Get("include"); v.Exists() {
		if f.include = parseList(v); f.include == nil {
			return nil
		}
	}
	if v := m.Get("exclude"); v.Exists() {
		if f.exclude = parseList(v); f.exclude == nil && (v.Kind() != strictjson.KindArray || v.Len() > 0) {
			return nil
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
