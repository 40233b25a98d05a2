package aaepsession

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/aaep"
)

// terms are the capabilities of a handshake, as far as what is granted can go
// beyond what was asked for (AAEP 5.4.4). What is absent is not compared.
type terms struct {
	rate       int64 // events per second; 0 if it is absent
	languages  []string
	boundaries []string
	levels     []string
	extensions []string
	filters    *filters

	replies, clarifications, signedOnly answerTo
}

// answerTo is a flag that may be absent.
type answerTo uint8

const (
	unsaid answerTo = iota
	no
	yes
)

type filters struct{ include, exclude []string }

// maxTerms bounds each list of terms, in bytes; of longer ones nothing is
// compared.
const maxTerms = 2048

func newTerms(v any) terms {
	m, _ := v.(map[string]any)
	t := terms{
		languages: listOf(m["languages"]), boundaries: listOf(m["coalesce_boundaries"]),
		levels: listOf(m["supported_conformance_levels"]), extensions: listOf(m["supported_extensions"]),
		replies: flagOf(m["supports_confirmation_reply"]), clarifications: flagOf(m["supports_clarification_reply"]),
		signedOnly: flagOf(m["accept_signed_manifests_only"]),
	}
	if n, ok := m["max_events_per_second"].(json.Number); ok {
		t.rate, _ = n.Int64()
	}
	if f, ok := m["event_filters"].(map[string]any); ok {
		t.filters = newFilters(f)
	}
	return t
}

func flagOf(v any) answerTo {
	switch v {
	case true:
		return yes
	case false:
		return no
	}
	return unsaid
}

// listOf reads a list of texts or numbers, nil if it is none or too long.
func listOf(v any) []string {
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
		if size += len(s) + 16; size > maxTerms {
			return nil
		}
		list = append(list, strings.Clone(s))
	}
	return list
}

// newFilters reads event filters, nil if there is more in them than is compared.
func newFilters(m map[string]any) *filters {
	f := &filters{include: []string{"aaep:agent.*"}}
	if v, there := m["include"]; there {
		if f.include = listOf(v); f.include == nil {
			return nil
		}
	}
	if v, there := m["exclude"]; there {
		if f.exclude = listOf(v); f.exclude == nil {
			if items, ok := v.([]any); !ok || len(items) > 0 {
				return nil
			}
		}
	}
	return f
}

// lets tells whether events of a type pass: exclude goes before include (A-23 of
// the digest).
func (f *filters) lets(kind string) bool {
	fits := func(pattern string) bool {
		pattern = aaep.NormaliseType(pattern)
		start, open := strings.CutSuffix(pattern, "*")
		return pattern == kind || open && strings.HasPrefix(kind, start)
	}
	return slices.ContainsFunc(f.include, fits) && !slices.ContainsFunc(f.exclude, fits)
}

// filterable are the core events that a filter may hold back: critical ones pass
// all of them (5.5.4).
var filterable = []string{
	aaep.TypeSessionStarted, aaep.TypeSessionCompleted, aaep.TypeSessionCancelled, aaep.TypeStateChanged,
	aaep.TypeProgressUpdated, aaep.TypeToolInvoked, aaep.TypeToolCompleted, aaep.TypeOutputStreaming,
}

// beyond says in what granted terms go beyond those that were asked for; "" if in
// nothing.
func (granted terms) beyond(asked terms) string {
	looser := func(kind string) bool { return granted.filters.lets(kind) && !asked.filters.lets(kind) }
	switch {
	case asked.rate > 0 && granted.rate > asked.rate:
		return "more events a second"
	case asked.languages != nil && !within(granted.languages, asked.languages, sameLanguage):
		return "other languages"
	case asked.boundaries != nil && !within(granted.boundaries, asked.boundaries, same):
		return "other boundaries"
	case asked.levels != nil && !within(granted.levels, asked.levels, same):
		return "other levels"
	case asked.extensions != nil && !within(granted.extensions, asked.extensions, same):
		return "other extensions"
	case asked.filters != nil && granted.filters != nil && slices.ContainsFunc(filterable, looser):
		return "looser filters"
	case asked.replies == no && granted.replies == yes, asked.clarifications == no && granted.clarifications == yes:
		return "replies"
	case asked.signedOnly == yes && granted.signedOnly == no:
		return "manifests without a signature"
	}
	return ""
}

func within(granted, asked []string, like func(a, b string) bool) bool {
	return !slices.ContainsFunc(granted, func(g string) bool {
		return !slices.ContainsFunc(asked, func(a string) bool { return like(g, a) })
	})
}

func same(a, b string) bool { return a == b }

// sameLanguage takes a language and its variants for the same.
func sameLanguage(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	return a == b || strings.HasPrefix(a, b+"-") || strings.HasPrefix(b, a+"-")
}
