package redact

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// spellings are the forms in which a name of a producer's stands in our own records
// and in texts about it.
var spellings = []struct {
	name  string
	write func(name string) string
	read  func(text string) string // undoes write
}{
	{"pointer", func(s string) string { return "/tool_input/" + pointerForm(s) + "/0" }, pointerText},
	{"pointer in a sentence", func(s string) string { return "duplicate_key at /tool_input/" + pointerForm(s) }, pointerText},
	{"pointer in percent form", func(s string) string { return "#/tool_input/" + url.PathEscape(pointerForm(s)) }, func(s string) string {
		s, _ = url.PathUnescape(s)
		return pointerText(s)
	}},
	{"percent form", url.PathEscape, func(s string) string { s, _ = url.PathUnescape(s); return s }},
	{"escapes", unicodeForm, func(s string) string { s, _ = strconv.Unquote(`"` + s + `"`); return s }},
	{"quoted", func(s string) string { return "argument " + strconv.Quote(s) + " is unknown" }, unquotedText},
	{"quoted twice", func(s string) string { return "argument " + strconv.Quote(strconv.Quote(s)) + " is unknown" }, func(s string) string { return unquotedText(unquotedText(s)) }},
}

func pointerForm(s string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(s) }

func pointerText(s string) string { return strings.NewReplacer("~1", "/", "~0", "~").Replace(s) }

func unquotedText(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`, `\n`, "\n").Replace(s)
}

// unicodeForm writes every sign of a text as an escape.
func unicodeForm(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && byteClass[byte(r)]&alnum != 0 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// What is found in a name is found in every spelling that the name can have.
func TestNamesInEverySpelling(t *testing.T) {
	positives, _ := corpus()
	if testing.Short() { // the race detector makes it ten times slower: every fourth sample, of each kind
		fourth := positives[:0]
		for i := 0; i < len(positives); i += 4 {
			fourth = append(fourth, positives[i])
		}
		positives = fourth
	}
	for _, form := range spellings {
		t.Run(form.name, func(t *testing.T) {
			missed, all := map[string]int{}, 0
			for _, s := range positives {
				if out, _ := maskText(s.Text); s.Class != "secret" || s.Kind == "high_entropy_named" || // a guess, which names keep
					strings.Contains(out, s.Secret) {
					continue
				}
				all++
				if out, _ := maskText(form.write(s.Text)); strings.Contains(out, s.Secret) || strings.Contains(form.read(out), s.Secret) {
					if missed[s.Kind]++; missed[s.Kind] <= 2 {
						t.Logf("%s: %q became %q", s.Kind, form.write(s.Text), out)
					}
				}
			}
			if len(missed) > 0 {
				t.Errorf("of %d missed %v", all, missed)
			}
		})
	}
}
