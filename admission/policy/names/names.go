// Package names says which names of tools and of arguments can be told from every other, by
// programs and by people. Begin with ValidTool and ValidArguments.
package names

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxTool is the longest tool name, in bytes, that a policy evaluates.
const MaxTool = 256

// ValidTool reports whether programs and people alike can tell a tool name from every
// other. It is false for the empty name, for names longer than MaxTool, and for names with
// invalid UTF-8, control or format characters (NUL, zero width, right-to-left overrides), white
// space at either end or other than a space inside, characters that have a compatibility form
// (full-width letters, unnormalised accents) or are drawn as nothing, letters that mix Latin
// with a script of letters that look like Latin ones, or letters, digits and signs that look like
// ASCII ones (see isUnambiguous and readsAsLatin).
func ValidTool(name string) bool {
	if name == "" || len(name) > MaxTool || name[0] == ' ' || name[len(name)-1] == ' ' {
		return false
	}
	if ascii, ok := plainASCII(name); ascii {
		return ok
	}
	if !utf8.ValidString(name) || !norm.NFKC.IsNormalString(name) {
		return false
	}
	latin, other, all := false, false, true
	for _, r := range name {
		if r != ' ' && !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) || unicode.Is(unicode.Co, r) || IsInvisible(r) || unicode.In(r, confusableScripts...) {
			return false
		}
		latin = latin || unicode.Is(unicode.Latin, r)
		other = other || unicode.IsLetter(r) && !unicode.In(r, latinCompatible...)
		all = all && isUnambiguous(r)
	}
	return !latin && !readsAsLatin(name) || latin && !other && all
}

// IsInvisible reports whether a character may be drawn as nothing: a reader that drops it reads
// another name.
func IsInvisible(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) || r == brailleBlank
}

// isUnambiguous reports whether a character may appear beside Latin letters: ASCII, the letters
// of other scripts that may be mixed with Latin, and the Latin letters of living alphabets. Of
// those beyond ASCII most are an ASCII letter with an accent. The dotless i and the capital I
// with a dot are refused: changing their case makes an ASCII i of them. So are phonetic
// letters, small capitals, marks that belong to no letter, and digits, signs and symbols that
// look like ASCII ones.
func isUnambiguous(r rune) bool {
	switch {
	case r < utf8.RuneSelf, r == katakanaDot:
		return true
	case r == dottedCapitalI || !unicode.IsLetter(r):
		return false
	case !unicode.Is(unicode.Latin, r), strings.ContainsRune(latinLetters, r):
		return true
	}
	base, _ := utf8.DecodeRuneInString(norm.NFD.String(string(r)))
	return base < utf8.RuneSelf
}

const (
	brailleBlank   = '\u2800'
	katakanaDot    = '\u30fb' // separates words in Katakana
	dottedCapitalI = '\u0130'

	// latinLetters are letters of living alphabets that are not accented ASCII letters.
	latinLetters = "\u00e6\u00c6\u0153\u0152\u00f8\u00d8\u00df\u1e9e\u00f0\u00d0\u00fe\u00de\u0111\u0110\u0142\u0141\u014b\u014a\u0127\u0126\u0167\u0166\u0259\u018f"
)

// readsAsLatin reports whether a name without Latin letters consists of letters that all look
// like Latin ones.
func readsAsLatin(name string) bool {
	letters := false
	for _, r := range name {
		if unicode.IsLetter(r) {
			letters = true
			if !strings.ContainsRune(lookalikes, r) {
				return false
			}
		}
	}
	return letters
}

// lookalikes are the Cyrillic, Greek and Armenian letters that look like ASCII letters.
const lookalikes = "\u0430\u0441\u0435\u043e\u0440\u0445\u0443\u0456\u0458\u0455\u04bb\u0501\u051b\u051d\u04cf\u0433\u0475\u044c" +
	"\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423\u051a\u051c\u04ae\u04c0\u0417" +
	"\u03b1\u03bf\u03bd\u03b9\u03c1\u03c5\u03b3\u03f2\u03f3\u03ba\u03c7" +
	"\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7" +
	"\u0585\u0578\u057d\u0570\u0581\u0566"

// confusableScripts are scripts that are not in use for tool names and have letters that look like
// Latin ones.
var confusableScripts = []*unicode.RangeTable{
	unicode.Cherokee, unicode.Lisu, unicode.Coptic, unicode.Deseret, unicode.Gothic, unicode.Old_Italic, unicode.Runic,
	unicode.Carian, unicode.Lycian, unicode.Lydian, unicode.Osage, unicode.Elbasan,
}

// ValidArguments reports whether every name in the arguments, at any depth, is unambiguous:
// valid UTF-8 without control or invisible characters and without white space at either end;
// not spelt beyond ASCII where folding case or width makes an ASCII name of it; without words
// that mix Latin letters with letters that look like them, or that read as Latin ones
// (deceptiveWords).
func ValidArguments(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for name, value := range v {
			if !validArgumentName(name) || !ValidArguments(value) {
				return false
			}
		}
	case []any:
		for _, value := range v {
			if !ValidArguments(value) {
				return false
			}
		}
	}
	return true
}

func validArgumentName(name string) bool {
	if strings.TrimSpace(name) != name {
		return false
	}
	if ascii, ok := plainASCII(name); ascii {
		return ok
	}
	if !utf8.ValidString(name) {
		return false
	}
	for _, r := range name {
		if unicode.Is(unicode.Cc, r) || IsInvisible(r) || unicode.In(r, confusableScripts...) {
			return false
		}
	}
	if deceptiveWords(name) {
		return false
	}
	folded, _ := plainASCII(strings.Map(foldedRune, norm.NFKC.String(name)))
	return !folded
}

// deceptiveWords reports whether a word of a name mixes Latin letters with those of scripts
// that look alike, or looks like a Latin word without being one. Names of arguments may consist
// of several words in several scripts; names of tools may not.
func deceptiveWords(name string) bool {
	latin, foreign := false, false // a Latin letter; a letter that is certainly not Latin
	for _, r := range name {
		latin = latin || unicode.Is(unicode.Latin, r)
		foreign = foreign || unicode.IsLetter(r) && !unicode.In(r, latinCompatible...) && !strings.ContainsRune(lookalikes, r)
	}
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) })
	return slices.ContainsFunc(words, func(w string) bool {
		return mixesScripts(w) || readsAsLatin(w) && (latin || !foreign)
	})
}

// mixesScripts reports whether a word has Latin letters and letters of a script that may not
// appear beside them.
func mixesScripts(word string) bool {
	latin, other := false, false
	for _, r := range word {
		latin = latin || unicode.Is(unicode.Latin, r)
		other = other || unicode.IsLetter(r) && !unicode.In(r, latinCompatible...)
	}
	return latin && other
}

// foldedRune returns the lower case of the upper case of a character: i for the dotless i, s
// for the long s.
func foldedRune(r rune) rune {
	if r == dottedCapitalI {
		return 'i'
	}
	return unicode.ToLower(unicode.ToUpper(r))
}

// latinCompatible are the scripts that may appear beside Latin letters (the "highly
// restrictive" profile of Unicode Technical Standard 39) and characters of no script.
var latinCompatible = []*unicode.RangeTable{
	unicode.Latin, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
	unicode.Common, unicode.Inherited,
}

func plainASCII(s string) (ascii, printable bool) {
	printable = true
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return false, false
		case c < ' ' || c == 0x7f:
			printable = false
		}
	}
	return true, printable
}

// IsClean reports whether an operand other than the tool name may be compared at all: valid
// UTF-8 without control and format characters.
func IsClean(s string) bool {
	if ascii, ok := plainASCII(s); ascii {
		return ok
	}
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Cf) {
			return false
		}
	}
	return true
}
