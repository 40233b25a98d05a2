package suggest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/admission/policy"
	"github.com/countersign-dev/countersign/admission/policy/functions"
)

// Bounds of what a wider rule lists for one argument.
const (
	maxListed    = 16   // values of an argument that are always listed
	maxValues    = 1000 // texts, directories or servers
	maxText      = 4096 // characters of a listed text
	maxInline    = 2000 // characters of a listed value that is no text
	maxFreeTexts = 1 << 20
)

// argument is what was seen of one argument of a shape: what the values have in common, for a wider rule.
type argument struct {
	free    bool
	longest int // characters of a free text

	values   map[string]any // by canonical form
	tooMany  bool           // more than values holds
	dirs     map[string]bool
	loose    map[string]any // values that are in no directory: hidden files
	allPaths bool
	servers  map[string]bool
	allURLs  bool
}

func newArgument(in policy.Input, name string) *argument {
	_, text := in.Args[name].(string)
	return &argument{free: text && isFreeText(in, name), values: map[string]any{}, dirs: map[string]bool{}, loose: map[string]any{}, allPaths: true,
		servers: map[string]bool{}, allURLs: true}
}

func (a *argument) add(v any) {
	text, isText := v.(string)
	if a.free {
		a.longest = max(a.longest, utf8.RuneCountInString(text))
		return
	}
	if key := CanonicalForm(v); len(a.values) < maxValues {
		a.values[key] = v
	} else if _, there := a.values[key]; !there {
		a.tooMany = true
	}
	a.addPath(text, isText)
	a.addURL(text, isText)
}

// addPath notes the directory of a plain absolute path. A hidden file, and a file in the root, are
// noted by name.
func (a *argument) addPath(text string, isText bool) {
	if !a.allPaths {
		return
	}
	if a.allPaths = isText && functions.Within(text, "/") && strings.HasPrefix(text, "/") && !strings.HasSuffix(text, "/") && !strings.Contains(text, "//"); !a.allPaths {
		return
	}
	at := strings.LastIndexByte(text, '/')
	if dir, file := text[:at+1], text[at+1:]; dir == "/" || file[0] == '.' {
		a.loose[text] = text
	} else {
		a.dirs[dir] = true
	}
	a.allPaths = len(a.dirs) <= maxValues && len(a.loose) <= maxValues
}

// addURL notes the server of an address.
func (a *argument) addURL(text string, isText bool) {
	if !a.allURLs {
		return
	}
	u := functions.ParseAddress(text)
	if a.allURLs = isText && u.Known && u.User == ""; a.allURLs {
		a.servers[u.Scheme+"://"+u.Host+":"+strconv.FormatInt(u.Port, 10)] = true
		a.allURLs = len(a.servers) <= maxValues
	}
}

// limit is the condition on one argument, with the lists that it refers to as params.
type limit struct {
	condition string
	lists     map[string][]string
	says      string // for people
	wide      bool   // it permits values that were not seen
}

// limitFor returns the condition on the argument, or why there is none. param makes names of params.
func (a *argument) limitFor(name string, param func() string) (l limit, problem string) {
	arg := argumentExpression(name)
	switch n := len(a.values); {
	case a.free && a.longest > maxFreeTexts:
		return l, "argument " + strconv.Quote(name) + " is longer than a rule bounds"
	case a.free:
		return limit{condition: fmt.Sprintf("type(%s) == string && size(%s) <= %d", arg, arg, a.longest), says: fmt.Sprintf("any text of at most %d characters", a.longest), wide: true}, ""
	case n <= maxListed && !a.tooMany:
		return a.listValues(name, arg, param)
	case a.allPaths:
		return a.listDirs(arg, param), ""
	case a.allURLs:
		return a.listServers(arg, param), ""
	case a.tooMany:
		return l, "argument " + strconv.Quote(name) + " had more different values than a rule lists"
	}
	return a.listValues(name, arg, param)
}

// listValues permits exactly what was seen.
func (a *argument) listValues(name, arg string, param func() string) (l limit, problem string) {
	keys := sortedKeys(a.values)
	var list, literals []string
	for _, key := range keys {
		switch v := a.values[key].(type) {
		case string:
			if utf8.RuneCountInString(v) > maxText {
				return l, "a value of argument " + strconv.Quote(name) + " is longer than a rule lists"
			}
			list = append(list, v)
		default:
			literal, ok := literalOf(v)
			if !ok {
				return l, "a value of argument " + strconv.Quote(name) + " cannot be written in a rule"
			}
			literals = append(literals, literal)
		}
	}
	l.says = fmt.Sprintf("%d values", len(keys))
	if len(list) > 0 { // all are texts: a shape has one type for an argument
		return l.ofTexts(list, arg, param), ""
	}
	l.condition = arg + " in [" + strings.Join(literals, ", ") + "]"
	if len(literals) == 1 {
		l.condition = arg + " == " + literals[0]
	}
	if len(l.condition) > maxInline {
		return l, "the values of argument " + strconv.Quote(name) + " are longer than a rule lists"
	}
	return l, ""
}

// ofTexts permits the texts of a list. A param holds no blank text.
func (l limit) ofTexts(list []string, arg string, param func() string) limit {
	var ways []string
	list = slices.DeleteFunc(list, func(s string) bool {
		if strings.TrimSpace(s) == "" {
			ways = append(ways, arg+" == "+strconv.Quote(s))
			return true
		}
		return false
	})
	if len(list) > 0 {
		p := param()
		ways, l.lists = append(ways, arg+" in params."+p), map[string][]string{p: list}
	}
	l.condition = "type(" + arg + ") == string && (" + strings.Join(ways, " || ") + ")"
	return l
}

// listDirs permits files directly in the directories that were seen, except hidden ones, and the
// other files by name.
func (a *argument) listDirs(arg string, param func() string) limit {
	p := param()
	rest := fmt.Sprintf("%s.substring(size(d))", arg)
	l := limit{lists: map[string][]string{p: sortedKeys(a.dirs)}, says: fmt.Sprintf("files in %d directories", len(a.dirs)), wide: len(a.dirs) > 0}
	l.condition = fmt.Sprintf("type(%s) == string && path.within(%s, '/') && params.%s.exists(d, %s.startsWith(d) && size(%s) > size(d) && !%s.contains('/') && !%s.startsWith('.'))",
		arg, arg, p, arg, arg, rest, rest)
	if len(a.loose) > 0 {
		named := param()
		l.lists[named] = sortedKeys(a.loose)
		l.condition = fmt.Sprintf("type(%s) == string && (%s in params.%s || %s)", arg, arg, named, l.condition)
		l.says += fmt.Sprintf(" and %d by name", len(a.loose))
	}
	if len(a.dirs) == 0 {
		delete(l.lists, p)
		named := sortedKeys(l.lists)[0]
		l.condition = fmt.Sprintf("type(%s) == string && %s in params.%s", arg, arg, named)
	}
	return l
}

// listServers permits addresses of the servers that were seen.
func (a *argument) listServers(arg string, param func() string) limit {
	p := param()
	u := "url.parse(" + arg + ")"
	return limit{
		condition: fmt.Sprintf("type(%s) == string && %s.known && %s.user == '' && (%s.scheme + '://' + %s.host + ':' + string(%s.port)) in params.%s", arg, u, u, u, u, u, p),
		lists:     map[string][]string{p: sortedKeys(a.servers)}, says: fmt.Sprintf("addresses of %d servers", len(a.servers)), wide: true,
	}
}

// literalOf writes a JSON value as a literal of a condition.
func literalOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case string:
		return strconv.Quote(v), utf8.ValidString(v)
	case json.Number:
		return numberLiteral(v.String())
	case float64:
		return numberLiteral(strconv.FormatFloat(v, 'g', -1, 64))
	case []any:
		return joinLiterals(v)
	case map[string]any:
		pairs := make([]string, 0, len(v))
		for _, name := range sortedKeys(v) {
			value, ok := literalOf(v[name])
			if !ok {
				return "", false
			}
			pairs = append(pairs, strconv.Quote(name)+": "+value)
		}
		return "{" + strings.Join(pairs, ", ") + "}", true
	}
	return "", false
}

func joinLiterals(list []any) (string, bool) {
	parts := make([]string, len(list))
	for i, e := range list {
		var ok bool
		if parts[i], ok = literalOf(e); !ok {
			return "", false
		}
	}
	return "[" + strings.Join(parts, ", ") + "]", true
}

// numberLiteral writes a number as policies see it: an int if its value is a whole number within
// ±2^53, else a double.
func numberLiteral(text string) (string, bool) {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return "", false
	}
	if f == float64(int64(f)) && f <= 1<<53 && f >= -(1<<53) {
		return strconv.FormatInt(int64(f), 10), true
	}
	literal := strconv.FormatFloat(f, 'e', -1, 64)
	return literal, true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
