package policybucket

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/events"
)

func set(t testing.TB, names ...string) []byte {
	t.Helper()
	s := events.PolicySet{}
	for _, n := range names {
		s.Documents = append(s.Documents, events.PolicyDocument{Name: n, Text: "set " + n})
	}
	b, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// step is one entry of the bucket; its revision is its place.
type step struct {
	key   string
	value []byte // nil deletes
}

func held(steps ...step) *BucketState {
	h := &BucketState{}
	for i, s := range steps {
		if s.value == nil {
			h.Delete(s.key, uint64(i+1))
		} else {
			h.Put(s.key, s.value, uint64(i+1))
		}
	}
	return h
}

func inForce(h *BucketState) string {
	docs, err := h.Documents()
	if err != nil {
		return err.Error()
	}
	var list []string
	for _, d := range docs {
		list = append(list, d.Name+"="+string(d.Data))
	}
	return strings.Join(list, " ")
}

func TestDocuments(t *testing.T) {
	one := []byte("one")
	ab := set(t, "a", "b")
	for _, c := range []struct {
		name  string
		steps []step
		want  string
		mixed string
	}{
		{"empty", nil, "", "[]"},
		{"one by one", []step{{"b", one}, {"a", one}}, "a=one b=one", "[a b]"},
		{"one taken back", []step{{"b", one}, {"a", one}, {"b", nil}}, "a=one", "[a b]"},
		{"a set", []step{{"_set", ab}}, "a=set a b=set b", "[]"},
		{"a set supersedes what was put before", []step{{"c", one}, {"a", one}, {"_set", ab}}, "a=set a b=set b", "[]"},
		{"one put after the set", []step{{"_set", ab}, {"a", one}, {"c", one}}, "a=one b=set b c=one", "[a c]"},
		{"one deleted after the set", []step{{"_set", ab}, {"a", nil}}, "b=set b", "[a]"},
		{"the set deleted", []step{{"a", one}, {"_set", ab}, {"_set", nil}}, "", "[]"},
		{"put after the set was deleted", []step{{"a", one}, {"_set", nil}, {"c", one}}, "c=one", "[c]"},
		{"another set", []step{{"_set", ab}, {"a", one}, {"_set", set(t, "c")}}, "c=set c", "[]"},
		{"no set at all", []step{{"a", one}, {"_set", []byte("{}")}}, "version is 0", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := held(c.steps...)
			if got := inForce(h); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
				t.Errorf("in force: %s", got)
			}
			if got := fmt.Sprint(h.Mixed()); got != c.mixed {
				t.Errorf("mixed: %s", got)
			}
			if h.Revision != uint64(len(c.steps)) {
				t.Errorf("revision %d", h.Revision)
			}
		})
	}
}

// A set that cannot be read must deny, whatever was there before or is put beside
// it.
func TestAnUnreadableSetIsAnError(t *testing.T) {
	for _, value := range []string{"{", "[]", `{"v":2,"documents":[]}`, `{"v":1,"documents":[],"extra":1}`,
		`{"v":1,"documents":[{"name":"a","text":"x"},{"name":"a","text":"y"}]}`} {
		h := held(step{"a", []byte("one")}, step{"_set", []byte(value)}, step{"b", []byte("one")})
		if _, err := h.Documents(); !errors.Is(err, events.ErrPolicySet) {
			t.Errorf("%s: %v", value, err)
		}
	}
}

// The entries of different keys may come in any order: a watch and a listing see
// the same.
func TestOrderDoesNotMatter(t *testing.T) {
	ab := set(t, "a", "b")
	rapid.Check(t, func(t *rapid.T) {
		keys := []string{"a", "b", "c", events.PolicySetKey}
		last := map[string]int{}
		var steps []step
		for range rapid.IntRange(1, 12).Draw(t, "n") {
			s := step{key: rapid.SampledFrom(keys).Draw(t, "key")}
			if rapid.Bool().Draw(t, "put") {
				if s.value = []byte("one"); s.key == events.PolicySetKey {
					s.value = ab
				}
			}
			last[s.key] = len(steps)
			steps = append(steps, s)
		}
		order := rapid.Permutation(keys).Draw(t, "order")
		listed := &BucketState{}
		for _, key := range order {
			i, there := last[key]
			switch {
			case !there:
			case steps[i].value == nil:
				listed.Delete(key, uint64(i+1))
			default:
				listed.Put(key, steps[i].value, uint64(i+1))
			}
		}
		watched := held(steps...)
		if inForce(watched) != inForce(listed) || watched.Revision != listed.Revision || watched.SetAt != listed.SetAt || fmt.Sprint(watched.Mixed()) != fmt.Sprint(listed.Mixed()) {
			t.Fatalf("watched %s, listed %s", inForce(watched), inForce(listed))
		}
	})
}

func TestHolds(t *testing.T) {
	docs := []policy.Document{{Name: "a", Data: []byte("set a")}, {Name: "b", Data: []byte("set b")}}
	ab := step{"_set", set(t, "a", "b")}
	for _, c := range []struct {
		name  string
		steps []step
		want  bool
	}{
		{"pushed", []step{ab}, true},
		{"never pushed", []step{{"a", []byte("set a")}, {"b", []byte("set b")}}, false},
		{"the same was put by itself", []step{ab, {"a", []byte("set a")}}, false},
		{"another", []step{{"_set", set(t, "a")}}, false},
	} {
		if got := held(c.steps...).HoldsExactly(docs); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	if got := DecodeDocuments(EncodeDocuments(docs)); len(got) != 2 || !equalDocument(got[1], docs[1]) {
		t.Errorf("%v", got)
	}
}
