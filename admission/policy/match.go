package policy

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/casefold"
)

// operand is one compiled operand of match; nil places no condition.
type operand struct {
	literals map[string]struct{}
	globs    []string
}

func newOperand(patterns []string) *operand {
	if len(patterns) == 0 {
		return nil
	}
	o := &operand{literals: map[string]struct{}{}}
	for _, p := range patterns {
		if strings.ContainsAny(p, "*?") {
			o.globs = append(o.globs, p)
		} else {
			o.literals[p] = struct{}{}
		}
	}
	return o
}

// matches reports whether o matches value. An absent value never matches.
func (o *operand) matches(value string) bool {
	if o == nil {
		return true
	}
	if value == "" {
		return false
	}
	if _, ok := o.literals[value]; ok {
		return true
	}
	return slices.ContainsFunc(o.globs, func(g string) bool { return matchGlob(g, value) })
}

func (o *operand) matchesAny(values []string) bool {
	return o == nil || slices.ContainsFunc(values, o.matches)
}

// foldPatterns returns o with every pattern case-folded.
func (o *operand) foldPatterns() *operand {
	if o == nil {
		return nil
	}
	f := &operand{literals: map[string]struct{}{}}
	for l := range o.literals {
		f.literals[casefold.String(l)] = struct{}{}
	}
	for _, g := range o.globs {
		f.globs = append(f.globs, casefold.String(g))
	}
	return f
}

// matchGlob matches the whole of s, case-sensitively: * is any number of characters, ? is one.
// It needs no more than len(pattern)*len(s) steps.
func matchGlob(pattern, s string) bool {
	star, retry := -1, 0
	p, i := 0, 0
	for i < len(s) {
		_, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, retry = p, i
			p++
		case p < len(pattern) && pattern[p] == '?':
			p++
			i += n
		case p < len(pattern) && strings.HasPrefix(pattern[p:], s[i:i+n]):
			p += n
			i += n
		case star >= 0:
			_, n := utf8.DecodeRuneInString(s[retry:])
			retry += n
			p, i = star+1, retry
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
