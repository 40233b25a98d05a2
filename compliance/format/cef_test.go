package format

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// parseCEF reads a line as a SIEM does: the header by its unescaped pipes, the
// extension by its unescaped equals signs. It shares nothing with the writer.
func parseCEF(t testing.TB, line string) (header []string, extension map[string]string) {
	t.Helper()
	rest := line
	for len(header) < 7 {
		field := ""
		for {
			i := strings.IndexAny(rest, `\|`)
			if i < 0 {
				t.Fatalf("the header ends early: %q", line)
			}
			field += rest[:i]
			if rest[i] == '\\' {
				if i+1 >= len(rest) || !strings.ContainsRune(`\|`, rune(rest[i+1])) {
					t.Fatalf("a stray backslash in the header: %q", line)
				}
				field += rest[i+1 : i+2]
				rest = rest[i+2:]
				continue
			}
			rest = rest[i+1:]
			break
		}
		header = append(header, field)
	}
	extension = map[string]string{}
	key, rest, found := strings.Cut(rest, "=")
	for found {
		value, next := "", ""
		for i := 0; ; i++ {
			if i >= len(rest) {
				value, rest = rest, ""
				break
			}
			if rest[i] == '\\' {
				i++
				continue
			}
			if rest[i] == '=' {
				at := strings.LastIndexByte(rest[:i], ' ')
				if at < 0 {
					t.Fatalf("a stray = in %q", line)
				}
				value, next, rest = rest[:at], rest[at+1:i], rest[i+1:]
				break
			}
		}
		extension[key] = strings.NewReplacer(`\\`, `\`, `\=`, `=`, `\n`, "\n", `\r`, "\r").Replace(value)
		key, found = next, next != ""
	}
	return header, extension
}

func TestCEFGolden(t *testing.T) {
	e := cefEvent{"finding.a|b", "Finding: a|b\nc\\d", 8, []string{"msg", "one=1|2 \\ three\nfour", "empty", "", "cs1Label", "tenant"}}
	const want = `CEF:0|Countersign|Countersign|v1|finding.a\|b|Finding: a\|b c\\d|8|msg=one\=1|2 \\ three\nfour cs1Label=tenant`
	if got := e.formatLine("v1"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := cefText("a\u202eb\ufe0f\u3164\tc\n"); got != "a b   c\n" {
		t.Errorf("what is not seen as itself: %q", got)
	}
}

// FuzzCEF: whatever the texts are, a reader finds the same fields again, and the
// line is one line.
func FuzzCEF(f *testing.F) {
	f.Add("a|b", "na=me", `va\lue`, "x y=z")
	f.Add("\\", "\r\n", "\\n=\\", " lead and trail ")
	f.Add("|||", "", "a=b cs9=forged act=allow", "\u2028\x00\x7f")
	f.Add("\xff\xfe", "\u0085", "\\=\\|", "\n")
	f.Fuzz(func(t *testing.T, signature, name, one, two string) {
		line := cefEvent{signature, name, 5, []string{"msg", one, "act", two, "end", "1"}}.formatLine("v")
		if strings.ContainsAny(line, "\n\r\u2028\u2029\x00\u0085") || !utf8.ValidString(line) {
			t.Fatalf("not one line of text: %q", line)
		}
		flat := strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ")
		header, extension := parseCEF(t, line)
		if header[4] != flat.Replace(cefText(signature)) || header[5] != flat.Replace(cefText(name)) || header[6] != "5" {
			t.Errorf("header %q of %q", header, line)
		}
		for key, value := range map[string]string{"msg": one, "act": two} {
			want := strings.Trim(cefText(value), " ")
			if got, has := extension[key]; got != want || has != (value != "") {
				t.Errorf("%s is %q, want %q, in %q", key, got, want, line)
			}
		}
		if extension["end"] != "1" || len(extension) > 3 {
			t.Errorf("extension %q of %q", extension, line)
		}
	})
}
