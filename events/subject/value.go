package subject

import "unicode/utf8"

// Token returns the token of a text that Unescape or Parse returned: a hash token stays the
// same. It is for names from records and from their readers; raw names are escaped with Escape.
func Token(value string) string {
	if isHash(value) {
		return value
	}
	return Escape(value)
}

// TokenValue returns a text in the form that Parse returns and records use: the text itself, or
// the hash token if it is too long.
func TokenValue(text string) string {
	value, _ := Unescape(Token(text))
	return value
}

// PrintableName is a value of a subject in the form of records: text that is not UTF-8 stays escaped.
func PrintableName(value string) string {
	if !utf8.ValidString(value) {
		return Escape(value)
	}
	return value
}
