package canonical

import (
	"strconv"
	"strings"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// Locate follows a JSON pointer in a tree that encoding/json made. It returns the value and the
// pointer's last token.
func Locate(tree any, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strictjson.UnescapePointer(token)
		switch at := tree.(type) {
		case map[string]any:
			if tree, ok = at[last]; !ok {
				return nil, "", false
			}
		case []any:
			i, err := strconv.Atoi(last)
			if err != nil || i < 0 || i >= len(at) {
				return nil, "", false
			}
			tree = at[i]
		default:
			return nil, "", false
		}
	}
	return tree, last, true
}
