package subject

// Token is the token of a text as Unescape or Parse gave it: what stands for a text
// that is too long is its own token. It is for names that come from records and
// from people who read them; what names itself is given to Escape.
func Token(value string) string {
	if isHash(value) {
		return value
	}
	return Escape(value)
}

// TokenValue is a text in the form that subjects give back, in which records are found
// by it: itself, or what stands for it if it is too long.
func TokenValue(text string) string {
	value, _ := Unescape(Token(text))
	return value
}
