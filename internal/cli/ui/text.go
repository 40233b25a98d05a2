package ui

import (
	"fmt"
	"strings"
	"time"
)

// Plural formats a count of something, in the singular for one.
func Plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// Sequences lists log sequences, only the first few if there are many.
func Sequences(list []uint64) string {
	const most = 8
	texts := make([]string, 0, most)
	for _, s := range list[:min(most, len(list))] {
		texts = append(texts, fmt.Sprint(s))
	}
	if len(list) > most {
		texts = append(texts, "…")
	}
	return strings.Join(texts, ", ")
}

// ShortDuration formats a duration with about three digits.
func ShortDuration(d time.Duration) string {
	switch {
	case d < 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", d.Seconds()*1000)
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
