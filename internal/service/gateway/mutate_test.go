package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/countersign-dev/countersign/internal/service/servicetest"
)

// mutator makes requests and events of a valid document: some are left valid, others miss members, have members of
// wrong types, unknown ones or the same twice, are nested too deeply, or are no JSON at all. The same seed gives the
// same documents.
type mutator struct{ *rand.Rand }

func newMutator(seed uint64) mutator { return mutator{rand.New(rand.NewPCG(seed, 0))} }

// wrong are values, as JSON, that take the place of others.
var wrong = []string{`null`, `true`, `0`, `-1`, `1.5`, `1e400`, `9007199254740993`, `""`, `"x"`, `"\u0000"`, `"\ud800"`, `"é\u202e"`, `[]`, `{}`, `[null,{"a":1}]`,
	`"` + strings.Repeat("long ", 200) + `"`, strings.Repeat(`[`, 100) + strings.Repeat(`]`, 100), strings.Repeat(`{"a":`, 100) + `1` + strings.Repeat(`}`, 100)}

// damage are changes of the text itself.
var damage = []func(string) string{
	func(s string) string { return s[:len(s)/2] },
	func(s string) string { return s + "}" },
	func(s string) string { return strings.Replace(s, `"`, "\"\xff", 1) },
	func(s string) string { return strings.Replace(s, ":", " ", 1) },
	func(string) string { return "" },
	func(string) string { return `"a text"` },
}

// member is one member of an object, whose value is text of JSON.
type member struct{ name, value string }

// document is a mutant of text, in which every occurrence of an old text is replaced by the new one first.
func (m mutator) document(tb testing.TB, text []byte, replace ...string) []byte {
	tb.Helper()
	out := strings.NewReplacer(replace...).Replace(string(text))
	for range max(0, m.IntN(5)-2) { // three fifths stay as they are
		out = m.mutate(tb, out)
	}
	if m.IntN(12) == 0 {
		out = damage[m.IntN(len(damage))](out)
	}
	return []byte(out)
}

// mutate changes one member of an object, or of one of the objects in it.
func (m mutator) mutate(tb testing.TB, text string) string {
	tb.Helper()
	var tree map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &tree) != nil || len(tree) == 0 {
		return text
	}
	var list []member
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		list = append(list, member{name, string(tree[name])})
	}
	at := m.IntN(len(list))
	switch chosen := &list[at]; m.IntN(6) {
	case 0:
		list = slices.Delete(list, at, at+1)
	case 1:
		chosen.value = wrong[m.IntN(len(wrong))]
	case 2:
		list = append(list, member{"unheard_of", wrong[m.IntN(len(wrong))]})
	case 3:
		list = append(list, *chosen)
	case 4:
		chosen.name = strings.ToUpper(chosen.name)
	default:
		chosen.value = m.mutate(tb, chosen.value)
	}
	var parts []string
	for _, member := range list {
		name, err := json.Marshal(member.name)
		servicetest.OK(tb, err)
		parts = append(parts, fmt.Sprintf("%s:%s", name, member.value))
	}
	return "{" + strings.Join(parts, ",") + "}"
}
