package aana

import (
	"strings"
	"time"
)

// timeLayouts are the accepted forms of ISO 8601, with the zone in any form of zoneLayouts.
// Package time also accepts a fraction after the seconds.
var (
	timeLayouts = []string{"2006-01-02T15:04:05", "2006-01-02T15:04"}
	zoneLayouts = []string{"", "Z07:00", "Z0700", "Z07"}
)

// impossibleZone finds the zones of a day or with sixty minutes, which package time accepts.
var impossibleZone = pattern(`[+-](24(:?\d\d)?|\d\d:?60)$`)

// parseTime reads an ISO 8601 time: a date, or a date and time with T or a space between, with
// or without a zone; without a zone it is UTC. Week dates, day numbers and forms without
// separators are not accepted.
func parseTime(text string) (time.Time, bool) {
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return t, true
	}
	if len(text) > len(time.DateOnly) && text[len(time.DateOnly)] == ' ' {
		text = text[:len(time.DateOnly)] + "T" + text[len(time.DateOnly)+1:]
	}
	// Package time also accepts a comma before a fraction and hours of one digit.
	if strings.Contains(text, ",") || len(text) < len("2006-01-02T15:04") || text[len("2006-01-02T15")] != ':' || impossibleZone().MatchString(text) {
		return time.Time{}, false
	}
	for _, layout := range timeLayouts {
		for _, zone := range zoneLayouts {
			if t, err := time.Parse(layout+zone, text); err == nil {
				return t.UTC(), true
			}
		}
	}
	return time.Time{}, false
}
