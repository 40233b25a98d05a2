package ui

import (
	"strings"
	"testing"
)

func TestColumns(t *testing.T) {
	for _, c := range []struct {
		text  string
		want  int
		in4   string // in a column of four
		lines string // broken into lines of six
	}{
		{"", 0, "    ", ""},
		{"ab", 2, "ab  ", "ab"},
		{"abcde", 5, "abc…", "abcde"},
		{"日本", 4, "日本", "日本"},
		{"日本語", 6, "日… ", "日本語"},
		{"日 本語 x", 9, "日 …", "日|本語 x"},
		{"日本語ツール", 12, "日… ", "日本語|ツール"},
		{"ｆull", 5, "ｆu…", "ｆull"},
		{"ﾊﾝｶｸ", 4, "ﾊﾝｶｸ", "ﾊﾝｶｸ"},
		{"한국", 4, "한국", "한국"},
		{"\u1112\u1161\u11ab", 2, "\u1112\u1161\u11ab  ", "\u1112\u1161\u11ab"},
		{"🚀go", 4, "🚀go", "🚀go"},
		{"👍🏽ok!", 5, "👍🏽o…", "👍🏽ok!"},
		{"🇨🇭", 2, "🇨🇭  ", "🇨🇭"},
		{"e\u0301te\u0301", 3, "e\u0301te\u0301 ", "e\u0301te\u0301"},
		{"e\u0301e\u0301e\u0301e\u0301e\u0301", 5, "e\u0301e\u0301e\u0301…", "e\u0301e\u0301e\u0301e\u0301e\u0301"},
		{"äöüß", 4, "äöüß", "äöüß"},
	} {
		if got := columns(c.text); got != c.want {
			t.Errorf("%q takes %d columns, want %d", c.text, got, c.want)
		}
		if got := Pad(c.text, 4); got != c.in4 {
			t.Errorf("%q in a column of four is %q, want %q", c.text, got, c.in4)
		}
		if got := strings.Join(breakLines(c.text, 6), "|"); got != c.lines {
			t.Errorf("%q in lines of six is %q, want %q", c.text, got, c.lines)
		}
	}
	if got := Clean("x"+strings.Repeat("\u0301", 1000), 10); len([]rune(got)) != marks*10+1 {
		t.Errorf("%d characters in ten columns", len([]rune(got)))
	}
}

// Two names that differ do not look the same, and no character moves the cursor.
func TestCleanShowsWhatIsNotSeen(t *testing.T) {
	for in, want := range map[string]string{
		"send_mail": "send_mail", "send_mail\ufe0f": "send_mail\ufffd", "\u3164": "\ufffd", "a\u115f\u034fb": "a\ufffd\ufffdb", "a\u2800": "a\ufffd", "a\U000e0100": "a\ufffd", "a\u202eb\x1b": "a\ufffdb\ufffd", "日本 é": "日本 é",
	} {
		if got := Clean(in, 20); got != want {
			t.Errorf("%q is shown as %q, not %q", in, got, want)
		}
	}
}

func TestBreakLines(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, "[]"},
		{"one two three", 7, "[one two|three]"},
		{"one  two", 20, "[one two]"},
		{"unbreakable", 4, "[unbr|eaka|ble]"},
		{"a unbreakable b", 4, "[a|unbr|eaka|ble|b]"},
		{"äöü äöü", 3, "[äöü|äöü]"},
	} {
		if got := "[" + strings.Join(breakLines(c.text, c.width), "|") + "]"; got != c.want {
			t.Errorf("%q in %d: %s, want %s", c.text, c.width, got, c.want)
		}
	}
}
