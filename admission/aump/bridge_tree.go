package aump

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// objectMember is a member that is an object, else nil.
func objectMember(m map[string]any, key string) map[string]any {
	o, _ := m[key].(map[string]any)
	return o
}

// textMember is a member that is a text, else "".
func textMember(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

// textListMember is a member that is an array of nothing but texts, else nil.
func textListMember(m map[string]any, key string) []string {
	list, _ := m[key].([]any)
	var out []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// headerList is a header's comma list. Names of HTTP headers have no case.
func headerList(headers map[string]any, name string) []string {
	var list []string
	for _, key := range sortedKeys(headers) {
		if !strings.EqualFold(key, name) {
			continue
		}
		for part := range strings.SplitSeq(textMember(headers, key), ",") {
			list = append(list, strings.TrimSpace(part))
		}
	}
	return list
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// maxKey is how many bytes of a key a message shows.
const maxKey = 64

// quotedKey is a key for messages.
func quotedKey(key string) string {
	if len(key) > maxKey {
		key = strings.ToValidUTF8(key[:maxKey], "") + "…"
	}
	b, err := json.Marshal(key)
	if err != nil {
		return "?" // cannot happen: it came out of JSON
	}
	return string(b)
}
