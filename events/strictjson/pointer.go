package strictjson

import "strings"

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)

// EscapePointer writes a member's name as a token of a JSON pointer (RFC 6901).
func EscapePointer(name string) string { return pointerEscapes.Replace(name) }

// UnescapePointer is the name that a token of a JSON pointer means.
func UnescapePointer(token string) string { return pointerUnescapes.Replace(token) }
