package shell

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// maxBraces bounds the words that one brace expansion makes.
const maxBraces = 64

// expandWord returns the words that a word becomes, and whether all of it is known. A word that
// may become any number of words is one unknown word. An empty word without quotes is none.
func expandWord(w *syntax.Word) (words []string, known bool) {
	if w == nil {
		return nil, true
	}
	split := *w
	split.Parts = slices.Clone(w.Parts)
	braces := syntax.SplitBraces(&split)
	text, known := partsText(w.Parts, plain)
	if strings.Contains(text, ",") && (bracesLeft(&split) || braces && strings.Contains(maskOf(w.Parts), "$")) {
		return []string{Unknown}, false
	}
	if braces {
		if !smallBraces(&split) {
			return []string{Unknown}, false
		}
		known = true
		for one, err := range expand.BracesSeq(nil, &split) {
			if err != nil {
				return []string{Unknown}, false
			}
			text, ok := partsText(one.Parts, plain)
			text = checkWord(text, maskOf(one.Parts))
			if text == "" && !slices.ContainsFunc(one.Parts, isQuoted) {
				continue // Bash drops it
			}
			words, known = append(words, text), known && ok && !hasUnknown(text)
		}
		return words, known
	}
	text = checkWord(text, maskOf(w.Parts))
	return []string{text}, known && !hasUnknown(text)
}

// bracesLeft reports whether an unquoted brace is left in a word that was split at its braces. If there is a comma as
// well, quoted or not, Bash may split the word elsewhere: {a},b} is a} and b. With a $ a list may make the name of a
// variable: {a,$}b is ab and $b.
func bracesLeft(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(part syntax.WordPart) bool {
		switch x := part.(type) {
		case *syntax.BraceExp:
			return slices.ContainsFunc(x.Elems, bracesLeft)
		case *syntax.Lit:
			return strings.ContainsAny(maskOf([]syntax.WordPart{x}), "{}")
		}
		return false
	})
}

// isQuoted reports whether a part of a word makes it a word even if it is empty.
func isQuoted(part syntax.WordPart) bool {
	switch part.(type) {
	case *syntax.SglQuoted, *syntax.DblQuoted:
		return true
	}
	return false
}

// smallBraces reports whether a word has only lists in braces, of few words.
func smallBraces(w *syntax.Word) bool {
	n := braceWords(w)
	return n > 0 && n <= maxBraces
}

// braceWords is the number of words that a word becomes; 0 if it has a sequence, and at most
// maxBraces+1.
func braceWords(w *syntax.Word) int {
	n := 1
	for _, part := range w.Parts {
		b, is := part.(*syntax.BraceExp)
		if !is {
			continue
		}
		sum := 0
		for _, e := range b.Elems {
			one := braceWords(e)
			if b.Sequence || one == 0 {
				return 0
			}
			sum = min(sum+one, maxBraces+1)
		}
		n = min(n*sum, maxBraces+1)
	}
	return n
}

// quoting says what surrounds a part of a word: it decides what a backslash does.
type quoting string

// The kinds, each with the characters before which a backslash disappears.
const (
	plain        quoting = "any"
	doubleQuotes quoting = "$`\"\\\n"
	hereDocument quoting = "$`\\\n"
)

// partsText is the text of parts of a word, with Unknown where it is not known.
func partsText(parts []syntax.WordPart, in quoting) (text string, known bool) {
	var b strings.Builder
	known = true
	for _, part := range parts {
		switch x := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(x.Value, in))
		case *syntax.SglQuoted:
			s, ok := singleQuoted(x)
			b.WriteString(s)
			known = known && ok
		case *syntax.DblQuoted:
			s, ok := partsText(x.Parts, doubleQuotes)
			b.WriteString(s)
			if known = known && ok && !x.Dollar; x.Dollar {
				b.WriteString(Unknown)
			}
		default:
			b.WriteString(Unknown)
			known = false
		}
	}
	return b.String(), known
}

func singleQuoted(x *syntax.SglQuoted) (string, bool) {
	if !x.Dollar {
		return x.Value, true
	}
	s, ok := ansiText(x.Value)
	if !ok || !utf8.ValidString(s) {
		return Unknown, false
	}
	return s, true
}

// ansiLetters are the escapes of $'...' that are one character.
var ansiLetters = map[byte]byte{'a': 7, 'b': 8, 'e': 27, 'E': 27, 'f': 12, 'n': '\n', 'r': '\r', 't': '\t', 'v': 11, '\\': '\\', '\'': '\'', '"': '"', '?': '?'}

// ansiNumbers are the escapes of $'...' that are a number: their base and the most digits.
var ansiNumbers = map[byte]struct{ base, digits int }{'x': {16, 2}, 'u': {16, 4}, 'U': {16, 8}}

// ansiText is the text of $'...'. It is not known with an escape that is not in the tables, and with one
// that ends the text.
func ansiText(s string) (string, bool) {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		if i++; i == len(s) {
			return "", false
		}
		if c, letter := ansiLetters[s[i]]; letter {
			b = append(b, c)
			continue
		}
		form, at := ansiNumbers[s[i]], i+1
		if s[i] >= '0' && s[i] <= '7' {
			form.base, form.digits, at = 8, 3, i
		}
		end := at
		for end < len(s) && end < at+form.digits && digitValue(s[end]) < form.base {
			end++
		}
		n, err := strconv.ParseUint(s[at:end], max(form.base, 2), 32)
		if err != nil || n == 0 || n > unicode.MaxRune || form.digits < 4 && n > 0xff {
			return "", false
		}
		if form.digits >= 4 {
			b = utf8.AppendRune(b, rune(n))
		} else {
			b = append(b, byte(n))
		}
		i = end - 1
	}
	return string(b), true
}

// digitValue is the value of a hexadecimal digit, 16 for another character.
func digitValue(c byte) int {
	if at := strings.IndexByte("0123456789abcdefABCDEF", c); at >= 0 {
		return at - at/16*6
	}
	return 16
}

// unescape removes the backslashes that disappear.
func unescape(s string, in quoting) string {
	if !strings.ContainsRune(s, '\\') {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) || in != plain && !strings.ContainsRune(string(in), rune(s[i+1])) {
			b.WriteByte(s[i])
			continue
		}
		if i++; s[i] != '\n' {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// maskOf is the unquoted text of a word, to find patterns in: what is quoted becomes x.
func maskOf(parts []syntax.WordPart) string {
	var b strings.Builder
	quote := func(s string) {
		b.WriteString(strings.Map(func(r rune) rune {
			if r == '/' || r == '.' {
				return r
			}
			return 'x'
		}, s))
	}
	for _, part := range parts {
		switch x := part.(type) {
		case *syntax.Lit:
			for i := 0; i < len(x.Value); i++ {
				if x.Value[i] == '\\' && i+1 < len(x.Value) {
					i++
					quote(x.Value[i : i+1])
					continue
				}
				b.WriteByte(x.Value[i])
			}
		case *syntax.SglQuoted:
			quote(x.Value)
		case *syntax.DblQuoted:
			s, _ := partsText(x.Parts, doubleQuotes)
			quote(s)
		default:
			b.WriteByte('x')
		}
	}
	return b.String()
}

// checkWord makes patterns unknown, of which the text does not tell what they match: all but *, and *
// behind a dot at the beginning of a name, which matches hidden files.
func checkWord(text, mask string) string {
	if !strings.ContainsAny(mask, "*?[") {
		return text
	}
	for _, name := range strings.Split(mask, "/") {
		_, bracket, _ := strings.Cut(name, "[")
		if strings.Contains(name, "?") || strings.Contains(bracket, "]") || strings.HasPrefix(name, ".") && strings.Contains(name, "*") || strings.Contains(name, "**") {
			return text + Unknown
		}
	}
	return text
}

// hereText is the text of a here-document, with Unknown where it is not known.
func hereText(r *syntax.Redirect) string {
	text, quoted := r.Hdoc.Lit(), quotedDelimiter(r.Word)
	if !quoted {
		text, _ = partsText(r.Hdoc.Parts, hereDocument)
	}
	if r.Op != syntax.DashHdoc {
		return text
	}
	if !quoted && r.Hdoc.Lit() != text {
		return Unknown // which tabs are at the beginning of a line depends on what comes before
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimLeft(lines[i], "\t")
	}
	return strings.Join(lines, "\n")
}

// quotedDelimiter reports whether the delimiter of a here-document is quoted: then nothing in the document
// is expanded.
func quotedDelimiter(w *syntax.Word) bool {
	return slices.ContainsFunc(w.Parts, func(part syntax.WordPart) bool {
		l, literal := part.(*syntax.Lit)
		return !literal || strings.ContainsRune(l.Value, '\\')
	})
}

// inDirs is a path seen from every directory in which a command may run.
func inDirs(dirs []string, name string) []string {
	out := make([]string, 0, len(dirs))
	for _, d := range dirs {
		if j := Join(d, name); !slices.Contains(out, j) {
			out = append(out, j)
		}
	}
	return out
}

// Join is a path seen from a directory, cleaned by its text alone. An empty directory is the one in
// which the text starts. ~ stays: it is another directory, whatever the first one is.
func Join(dir, name string) string {
	switch {
	case hasUnknown(name) && !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "~"), strings.HasPrefix(name, Unknown):
		return Unknown
	case strings.HasPrefix(name, "/"):
		return path.Clean(name)
	case strings.HasPrefix(name, "~"):
		return cleanHome(name)
	case hasUnknown(dir):
		return Unknown
	case name == "":
		return dir
	case strings.HasPrefix(dir, "~"):
		return cleanHome(dir + "/" + name)
	}
	if joined := path.Join(dir, name); joined != "." {
		return joined
	}
	return ""
}

// cleanHome cleans a path below a home directory. What leads out of it is unknown.
func cleanHome(name string) string {
	home, rest, _ := strings.Cut(name, "/")
	switch rest = path.Clean(strings.TrimLeft(rest, "/")); {
	case rest == "..", strings.HasPrefix(rest, "../"), home == "~+", home == "~-":
		return Unknown
	case rest == ".":
		return home
	}
	return home + "/" + rest
}

// successDirs tells where a statement leads that ran in dirs and has succeeded. after is where it leads
// in any case.
func successDirs(s *syntax.Stmt, dirs, after []string) []string {
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || s.Negated || s.Background || len(call.Args) == 0 || call.Args[0].Lit() != "cd" && call.Args[0].Lit() != "pushd" {
		return after
	}
	var words []string
	for _, a := range call.Args {
		list, _ := expandWord(a)
		words = append(words, list...)
	}
	return cdTargets(words, dirs)
}

// cdTargets are the directories to which cd or pushd, with these words, leads.
func cdTargets(words, dirs []string) []string {
	args := words[1:]
	for len(args) > 0 && slices.Contains([]string{"-L", "-P", "-e", "--"}, args[0]) {
		args = args[1:]
	}
	switch {
	case len(args) == 0 && words[0] == "cd":
		return []string{"~"}
	case len(args) != 1 || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "+") || strings.HasPrefix(args[0], "~+") || strings.HasPrefix(args[0], "~-"):
		return []string{Unknown}
	case strings.ContainsAny(args[0], "*"):
		return []string{Unknown}
	}
	return union(nil, inDirs(dirs, args[0]))
}
