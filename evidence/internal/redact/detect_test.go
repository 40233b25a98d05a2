package redact

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// Numbers in these tests are made up; their check digits hold.
func TestPersonalData(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"e-mail":               {"write to Dana.Doe+x@mail.example.co.uk, please", "write to [redacted:email], please"},
		"e-mail, brackets":     {"Dana <dana@acme.example>", "Dana <[redacted:email]>"},
		"e-mail, idn":          {"an müller@bücher.example.", "an [redacted:email]."},
		"e-mail, query":        {"u?mail=a.b%40acme.example&x=1", "u?mail=[redacted:email]&x=1"},
		"card":                 {"pay with 4111111111111111 now", "pay with [redacted:payment_card] now"},
		"card, blanks":         {"5555 5555 5555 4444", "[redacted:payment_card]"},
		"card, dashes":         {"no 3782-822463-10005.", "no [redacted:payment_card]."},
		"card behind numbers":  {"order 12 4111 1111 1111 1111 12", "order 12 [redacted:payment_card] 12"},
		"card, as a float":     {"Dana,4111111111111111.0,12", "Dana,[redacted:payment_card].0,12"},
		"iban":                 {"to DE89370400440532013000 today", "to [redacted:iban] today"},
		"iban, blanks":         {"GB82 WEST 1234 5698 7654 32", "[redacted:iban]"},
		"phone, international": {"call +49 30 901820-0", "call [redacted:phone]"},
		"phone, plus only":     {"+14155552671", "[redacted:phone]"},
		"phone, brackets":      {"at (415) 555-2671 or", "at [redacted:phone] or"},
		"phone, dashes":        {"415-555-2671", "[redacted:phone]"},
		"phone, one":           {"1-415-555-2671", "[redacted:phone]"},
		"phone, word":          {"Telefon: 030 9018200", "Telefon: [redacted:phone]"},
		"phone, french":        {"01 42 68 53 00", "[redacted:phone]"},
		"phone, british":       {"07700 900123", "[redacted:phone]"},
		"us ssn":               {"ssn is 219-09-9999", "ssn is [redacted:national_id]"},
		"us ssn, no dashes":    {"SSN: 219099999", "SSN: [redacted:national_id]"},
		"uk nhs":               {"NHS number 943 476 5919", "NHS number [redacted:national_id]"},
		"uk nino":              {"NINO AB123456C", "NINO [redacted:national_id]"},
		"br cpf":               {"111.444.777-35", "[redacted:national_id]"},
		"ch ahv":               {"756.9217.0769.85", "[redacted:national_id]"},
		"fr nir":               {"1 85 05 78 006 084 91", "[redacted:national_id]"},
		"de tax":               {"Steuer-ID 86 095 742 719", "Steuer-ID [redacted:national_id]"},
		"nl bsn":               {"BSN 111222333", "BSN [redacted:national_id]"},
		"be":                   {"85.07.30-033.28", "[redacted:national_id]"},
		"pl pesel":             {"PESEL 44051401359", "PESEL [redacted:national_id]"},
		"se":                   {"811228-9874", "[redacted:national_id]"},
		"fi":                   {"131052-308T", "[redacted:national_id]"},
		"es dni":               {"DNI 12345678Z", "DNI [redacted:national_id]"},
		"es nie":               {"X1234567L", "[redacted:national_id]"},
		"it cf":                {"RSSMRA85T10A562S", "[redacted:national_id]"},
		"sg":                   {"S1234567D", "[redacted:national_id]"},
		"cn":                   {"11010519491231002X", "[redacted:national_id]"},
		"tr":                   {"TCKN 10000000146", "TCKN [redacted:national_id]"},
		"in":                   {"2341 2341 2346", "[redacted:national_id]"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, before := range []string{"", `a\n`, `a\t`} {
				if got, spans := maskText(before + tc.in); got != before+tc.want {
					t.Errorf("maskText(%q)\n got %q %v\nwant %q", before+tc.in, got, spans, before+tc.want)
				}
			}
		})
	}
}

func TestPersonalDataKeeps(t *testing.T) {
	for name, s := range map[string]string{
		"versions":     "pkg@1.2.3 lib@2.0.0-rc.1 node@18 image@sha256:abc",
		"files":        "logo@2x.png icon@3x.webp",
		"ssh":          "git clone git@github.com:org/repo.git",
		"userinfo":     "ssh://git@example.invalid/x.git https://bob@example.invalid/ postgres://reporting_service_reader_2@db.invalid/x https://d.invalid/@deploymentPipelineUser2026",
		"handles":      "@dana and a@b and me@localhost",
		"not luhn":     "4111111111111112 5555 5555 5555 4445",
		"not a card":   "order 1234567890123456 and 9999888877776666",
		"times":        "2026-11-20T06:42:00.123456789Z 1763620920123 1763620920123456789 20261120064200",
		"zone":         "2026-11-20T06:42:00+02:00 UTC+0100",
		"build":        "1.2.3+20130313144700 v2.11.0-20261120064200-abcdef012345",
		"uuid":         "550e8400-e29b-41d4-a716-446655440000 8c4f9d12-7a8b-4c3d-9e2f-123456789012",
		"hex":          "4b825dc642cb6eb9a060e54bf8d69288fbee4904 0x4111111111111111",
		"ip":           "10.20.30.40:8080 192.168.100.200 2001:db8::1",
		"decimal":      "3.14159265358979 0.4111111111111111 12,345,678.90 4111111111111111.5 4111111111111111.0.1 call 4155552671.0",
		"range":        "lines 100-200-300, 1990-2020, 12/31/2026, 2026.11.20",
		"isbn":         "ISBN 978-3-16-148410-0",
		"not an iban":  "DE89370400440532013001 AB12345678901234567890",
		"sku":          "AB123456 SKU-12345678 PN 12345678A",
		"wrong checks": "111.444.777-36 756.9217.0769.86 811228-9875 S1234567E 12345678A",
		"coordinates":  "52.520008, 13.404954 and 37.774929 -122.419416",
		"fillers":      "0000 0000 0000 0000, 000-00-0000, 1111111111111111",
		"long number":  "12345678901234567890123456789012345678901234567890",
	} {
		t.Run(name, func(t *testing.T) {
			for _, text := range []string{s, `a\n` + s + `\n`} {
				if got, spans := maskText(text); got != text {
					t.Errorf("%q became %q: %v", text, got, spans)
				}
			}
		})
	}
}

// Browsers, word processors and PDF files put no-break and narrow blanks and other dashes between the groups of a number.
func TestTypesetNumbers(t *testing.T) {
	blanks, dashes := []string{"\u00a0", "\u202f", "\u2009", "\u2007"}, []string{"\u2010", "\u2011", "\u2013", "\u2212"}
	for _, typed := range []string{
		"5555 5555 5555 4444", "to DE89 3704 0044 0532 0130 00.", "2341 2341 2346", "call +49 170 1234567", "+1-415-555-0132", "1-415-555-2671", "219-09-9999", "(415) 555-2671",
		"5555 5555 5555 4445", "lines 100-200-300, 1990-2020", "DE89 3704 0044 0532 0130 01", "1-2-2026 9-30",
	} {
		plain, _ := maskText(typed)
		for i := range blanks {
			swap := strings.NewReplacer(" ", blanks[i], "-", dashes[i])
			if got, spans := maskText(swap.Replace(typed)); got != swap.Replace(plain) {
				t.Errorf("%q is %q %v", swap.Replace(typed), got, spans)
			}
		}
	}
}

// What is found in plain text is found in its usual encodings, two deep.
func TestEncoded(t *testing.T) {
	for name, secret := range map[string]string{"github": github, "aws": awsID, "assignment": "password=hunter2!", "e-mail": "dana@acme.example", "pem": pemKey} {
		std := base64.StdEncoding.EncodeToString([]byte("the value is " + secret + " as agreed"))
		for form, s := range map[string]string{
			"base64":             "see " + std + " there",
			"base64 url":         "x=" + base64.RawURLEncoding.EncodeToString([]byte("??>>"+secret+"??>>")),
			"base64 twice":       base64.StdEncoding.EncodeToString([]byte(std)),
			"powershell":         "powershell -enc " + base64.StdEncoding.EncodeToString([]byte(utf16Of("echo "+secret))),
			"UTF-16, mark":       base64.StdEncoding.EncodeToString([]byte("\xff\xfe" + utf16Of("the value is "+secret))),
			"UTF-16, quotes":     base64.StdEncoding.EncodeToString([]byte(utf16Of("# “x” 😀 " + secret))),
			"UTF-16, Cyrillic":   base64.StdEncoding.EncodeToString([]byte(utf16Of("конфигурация: " + secret))),
			"UTF-16, Chinese":    base64.StdEncoding.EncodeToString([]byte("\xff\xfe" + utf16Of("配置文件里的密码是这个 "+secret))),
			"UTF-16, big-endian": base64.StdEncoding.EncodeToString([]byte("\xfe\xff" + bigEndian(utf16Of("“x” "+secret)))),
			"a line of signs":    base64.StdEncoding.EncodeToString([]byte(strings.Repeat("=", 40) + "\n" + secret)),
			"colours":            base64.StdEncoding.EncodeToString([]byte("\x1b[1mthe value\x1b[0m is " + secret + " as agreed\f")),
			"latin-1":            base64.StdEncoding.EncodeToString([]byte("der Schl\xfcssel ist " + secret + ", gr\xfc\xdfe")),
			"percent":            "/p?q=" + everyByte(secret, "%%%02X") + "&z",
			"percent query":      "/p?q=" + url.QueryEscape("a "+secret+" b"),
			"percent twice":      url.QueryEscape(everyByte(secret, "%%%02x")),
			"unicode":            `{\"a\":\"` + everyByte(secret, `\u%04x`) + `\"}`,
			"hex escapes":        everyByte(secret, `\x%02x`),
			"entities":           everyByte(secret, "&#%d;"),
		} {
			got, spans := maskText(s)
			if len(spans) == 0 {
				t.Errorf("%s, %s: nothing found in %s", name, form, s)
			}
			if again, _ := maskText(got); again != got {
				t.Errorf("%s, %s: not stable: %q, then %q", name, form, got, again)
			}
		}
	}
	for _, s := range []string{
		"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk", "100% sure, 50%ab of it, %zz", `C:\users\x\new`, "a &amp; b &#; &#x;",
		base64.StdEncoding.EncodeToString([]byte("a harmless text that says nothing at all")), strings.Repeat("QUJD", 100),
	} {
		if got, spans := maskText(s); got != s {
			t.Errorf("%q became %q: %v", s, got, spans)
		}
	}
}

// Base64 in lines is one value, whatever parts the lines: of its secret no line stays, and the prose around it does.
func TestEncodedLines(t *testing.T) {
	text := strings.Repeat("password=Hx99-quarryzz and more text ", 4)
	harmless := strings.Repeat("a harmless text that says nothing at all ", 400)
	random := make([]byte, 20_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	for name, br := range map[string]string{
		"lf": "\n", "crlf": "\r\n", "cr": "\r", "indented": "\n    ", "blanks behind": " \t\n", "blank line": "\n\n", "quoted": "\n> ", "quoted twice": "\n>> ", "comment": "\n# ", "comment of C": "\n * ",
		"escaped": `\n`, "escaped crlf": `\r\n`, "escaped, indented": `\n\t`, "escaped twice": `\\n`, "escaped thrice": `\\\\r\\\\n`, "shell": "\\\n",
	} {
		for _, width := range []int{25, 28, 50, 64, 70, 75, 76} {
			for form, v := range map[string]string{"": text, "twice": base64.StdEncoding.EncodeToString([]byte(text)), "UTF-16": utf16Of(text)} {
				s := "see" + br + inLines(v, width, br) + br + "the next line"
				if got, _ := maskText(s); strings.Replace(got, "=", "", 2) != "see"+br+"[redacted:encoded_data]"+br+"the next line" {
					t.Errorf("%s, %d, %s: %q", name, width, form, got)
				}
			}
			for _, s := range []string{harmless, strings.Repeat("\x00\xff\x01", 6000), string(random)} {
				if spans := Scan(inLines(s, width, br)); len(spans) > 0 {
					t.Errorf("%s, %d: %.80q: %v", name, width, s, spans)
				}
			}
		}
	}
}

// A terminal breaks lines at its width: words before the value make its first line shorter.
func TestEncodedLinesBehindWords(t *testing.T) {
	v := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat("a harmless text ", 3) + "password=Hx99-quarryzz" + strings.Repeat(" and more text", 9)))
	for first := 30; first < 80; first++ {
		s := "value: " + v[:first] + "\n" + v[first:first+80] + "\n" + v[first+80:first+160] + "\n" + v[first+160:]
		if got, _ := maskText(s); got != "value: [redacted:encoded_data]" {
			t.Errorf("%d: %q", first, got)
		}
	}
}

// Slashes in lines of base64 are often escaped in JSON.
func TestEncodedLinesWithEscapedSlashes(t *testing.T) {
	s := strings.ReplaceAll(inLines(strings.Repeat("what???? password=Hx99-quarryzz, ", 4), 70, `\n`), "/", `\/`)
	if got, _ := maskText(`{\"value\":\"` + s + `\"}`); !strings.Contains(s, `\/`) || got != `{\"value\":\"[redacted:encoded_data]\"}` {
		t.Errorf("%q is %q", s, got)
	}
}

// Values on lines of their own are looked into one by one, also if a line is as long as no line of another, or as all others.
func TestTwoEncodedValues(t *testing.T) {
	secret := "password: hunter2-Zq8vT1kLx9; user dana; at db.example"
	for form, last := range map[string]string{"": secret, "UTF-16": utf16Of(secret), "twice": base64.StdEncoding.EncodeToString([]byte(secret))} {
		for _, n := range []int{30, len(last), 700, 701, 702} {
			if form == "" && n%3 == 0 {
				continue // nothing tells them from lines of one value
			}
			harmless := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("a harmless text ", 50)[:n])) + "\n"
			for _, lines := range []int{1, 12} {
				s := strings.Repeat(harmless, lines)
				if got, _ := maskText(s + base64.RawURLEncoding.EncodeToString([]byte(last))); got != s+"[redacted:encoded_data]" {
					t.Errorf("%s, %d lines of %d: %q", form, lines, n, got)
				}
			}
		}
	}
}

// The work for lines of base64 is in proportion to their length, whatever their widths are.
func TestWorkForEncodedLines(t *testing.T) {
	value := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a harmless text ", 300)))
	for name, width := range map[string]func(line, lines int) int{
		"one":         func(_, _ int) int { return 76 },
		"not aligned": func(_, _ int) int { return 75 },
		"alternating": func(line, _ int) int { return 76 + line%2 },
		"falling":     func(line, lines int) int { return 24 + 4*(lines-line) },
		"rising":      func(line, _ int) int { return 24 + 4*line },
		"in pairs":    func(line, _ int) int { return 24 + line/2 },
		"in threes":   func(line, _ int) int { return 24 + 4*(line%3) },
	} {
		work := func(lines int) (perByte int) {
			var text strings.Builder
			for line := range lines {
				text.WriteString(value[:width(line, lines)] + "\n")
			}
			m := workBudget{left: math.MaxInt}
			inBase64(text.String(), nil, maxDecodings, &m, findPlain)
			return (math.MaxInt - m.left) / text.Len()
		}
		if few, many := work(100), work(800); many > few+1 || many >= workPerByte {
			t.Errorf("%s: %d for each byte of 100 lines, %d for each of 800", name, few, many)
		}
	}
}

func inLines(text string, width int, br string) string {
	var lines []string
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString([]byte(text))), width) {
		lines = append(lines, string(line))
	}
	return strings.Join(lines, br)
}

func utf16Of(text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return string(b)
}

func bigEndian(littleEndian string) string {
	b := []byte(littleEndian)
	for i := 0; i < len(b); i += 2 {
		b[i], b[i+1] = b[i+1], b[i]
	}
	return string(b)
}

// A truncated text keeps no part of what is found in it, wherever the cut is.
func TestTruncateKeepsNoPartOfASecret(t *testing.T) {
	for keep := range 60 {
		doc := map[string]any{"x": "say " + github + " twice", "phone": "call 415-555-2671 or " + github}
		c := Config{Forced: []string{"x"}, Treat: func(d, _, _ string) Treatment { return Treatment{Action: Truncate, KeepFirst: keep} }}
		out, _, err := Document(doc, "/d", nil, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out.(map[string]any) {
			if s := v.(string); strings.Contains(s, "ghp_") || !strings.HasSuffix(s, "]") {
				t.Errorf("keep %d: %q", keep, s)
			}
		}
	}
}

// Text that looks like secrets again and again is taken out as a whole, and a
// document full of such texts is refused, however short each of them is.
func TestWorkIsBounded(t *testing.T) {
	near := strings.Repeat(`\/ key=A12s-1235678A\`, 400)
	if spans := Scan(near); len(spans) != 1 || spans[0] != (Span{0, len(near), TooMany}) {
		t.Errorf("%v", spans)
	}
	clean := strings.Repeat("The agent looked at 17 pages of the report, wrote to two people at 10:30 and called no one. ", 100)
	if spans := Scan(clean); len(spans) > 0 {
		t.Errorf("clean text: %v", spans)
	}
	for _, tc := range []struct {
		text string
		err  error
	}{{near[:60], ErrTooMuch}, {clean[:60], nil}} {
		list := make([]any, 300)
		for i := range list {
			list[i] = tc.text
		}
		doc := map[string]any{"a": list, "b": map[string]any{"c": "x"}}
		if _, _, err := Document(doc, "", nil, Config{Size: 300 * 64}); !errors.Is(err, tc.err) {
			t.Errorf("%.20q: %v, want %v", tc.text, err, tc.err)
		}
	}
}

func everyByte(s, format string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteString(fmt.Sprintf(format, s[i]))
	}
	return b.String()
}
