package approval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Bounds of a preview.
const (
	maxItems      = 64  // arguments listed
	maxDepth      = 8   // of nested arguments
	maxShownValue = 200 // characters of a shown value
	maxNameBytes  = 512 // bytes of a name
)

// Preview is what a reviewer sees of a proposed call: names, and of each argument its place,
// type and size. Values are shown only if the policy's terms allow it, and never if they look
// like a secret.
type Preview struct {
	Protocol   string   `json:"protocol"`
	Source     string   `json:"source"`
	Agent      string   `json:"agent,omitempty"`
	Session    string   `json:"session,omitempty"`
	ToolCallID string   `json:"tool_call_id,omitempty"`
	Tool       string   `json:"tool,omitempty"`
	Action     string   `json:"action,omitempty"`
	Kind       string   `json:"resource_kind,omitempty"`
	Scope      string   `json:"resource_scope,omitempty"`
	Dir        string   `json:"dir,omitempty"` // in which the call runs
	FromAgent  string   `json:"from_agent,omitempty"`
	ToAgent    string   `json:"to_agent,omitempty"`
	Mandate    string   `json:"mandate,omitempty"`
	Policy     string   `json:"policy,omitempty"`
	Verdict    string   `json:"verdict"`
	Reasons    []string `json:"reasons"` // codes
	Message    string   `json:"message,omitempty"`
	Resource   *Item    `json:"resource,omitempty"`
	Arguments  []Item   `json:"arguments,omitempty"`
	More       int      `json:"more,omitempty"` // arguments that are not listed

	ApprovalScope string `json:"approval_scope,omitempty"` // what the request limits the approval to, besides the call and its agent
}

// Item is one argument.
type Item struct {
	Path     string `json:"path"`            // JSON pointer; names that are not plain words are left out
	Type     string `json:"type"`            // string number boolean null object array
	Size     int    `json:"size,omitempty"`  // characters of a string, members of an empty or deep object or array
	Value    string `json:"value,omitempty"` // as JSON, if it may be shown
	Withheld bool   `json:"withheld,omitempty"`
	Why      string `json:"why,omitempty"` // why a value that the terms name is withheld; see the constants
}

// Why a value that the terms name is withheld.
const (
	WhyName   = "its name is one of secrets"
	WhySecret = "it looks like a secret"
	WhyLong   = "it is too long"
	WhyForm   = "it is not printable"
	WhyNested = "it is an object or a list"
)

// Describe completes a preview with the resource and the arguments. show lists the values that
// may be shown; of an object or a list, all that is in it.
func (p Preview) Describe(resource any, args map[string]any, show []string) Preview {
	if resource != nil {
		p.Resource = &Item{Path: "resource"}
		p.Resource.describeValue(resource, slices.Contains(show, "resource"), false)
	}
	l := argumentLister{}
	if args != nil {
		var pointers []shownPointer
		for _, pointer := range show {
			if pointer != "" { // all arguments at once are never named
				pointers = append(pointers, shownPointer{pointer, isSecretName(pointer)})
			}
		}
		l.addLeaves(pointers, "", args, 0)
	}
	p.Arguments, p.More = l.items, l.more
	for _, s := range []*string{&p.Agent, &p.Session, &p.ToolCallID, &p.Tool, &p.Action, &p.Kind, &p.Scope, &p.Dir, &p.ApprovalScope, &p.FromAgent, &p.ToAgent} {
		*s = truncateName(*s)
	}
	return p
}

// truncateName bounds a name chosen by a producer.
func truncateName(s string) string {
	if len(s) > maxNameBytes {
		s = strings.ToValidUTF8(s[:maxNameBytes], "")
	}
	return s
}

// Digest is the keyed digest of the preview for the records.
func (p Preview) Digest(digest func([]byte) string) (string, error) {
	b, err := events.Encode(p)
	if err != nil {
		return "", fmt.Errorf("approval: the preview: %w", err)
	}
	return digest(b), nil
}

// shownPointer is the rest of a pointer of the terms, from a place in the arguments.
type shownPointer struct {
	rest   string
	secret bool // a name on the way is one of secrets: the value is withheld
}

type argumentLister struct {
	items []Item
	more  int
}

// addLeaves lists the leaves of a tree. show are the pointers of the values that may be shown,
// from here; shown is the path without names that may be values.
func (l *argumentLister) addLeaves(show []shownPointer, shown string, v any, depth int) {
	switch t := v.(type) {
	case map[string]any:
		if len(t) > 0 && depth < maxDepth {
			for _, k := range slices.Sorted(maps.Keys(t)) {
				l.addMember(show, k, shown+"/"+shownName(k), t[k], depth+1)
			}
			return
		}
	case []any:
		if len(t) > 0 && depth < maxDepth {
			for i, e := range t {
				at := strconv.Itoa(i)
				l.addMember(show, at, shown+"/"+at, e, depth+1)
			}
			return
		}
	}
	item := Item{Path: cmp.Or(shown, "/")}
	item.describeValue(v, slices.ContainsFunc(show, shownPointer.isHere), !slices.Contains(show, shownPointer{}))
	l.items = append(l.items, item)
}

func (l *argumentLister) addMember(show []shownPointer, name, shown string, v any, depth int) {
	if len(l.items) < maxItems {
		l.addLeaves(pointersBelow(show, name), shown, v, depth)
	} else {
		l.more += countLeaves(v, depth)
	}
}

// isHere reports whether the place itself is named.
func (p shownPointer) isHere() bool { return p.rest == "" }

// pointersBelow returns the rests of the pointers that begin with a member's name, and those that name
// all members. The pointer of a leaf is never built: a name may be as long as the request, and have
// 100,000 leaves.
func pointersBelow(show []shownPointer, name string) (below []shownPointer) {
	if len(show) == 0 {
		return nil
	}
	token := "/" + strictjson.EscapePointer(name)
	for _, p := range show {
		if p.isHere() {
			below = append(below, shownPointer{secret: p.secret || isSecretName(name)})
		} else if rest, ok := strings.CutPrefix(p.rest, token); ok && (rest == "" || rest[0] == '/') {
			below = append(below, shownPointer{rest, p.secret})
		}
	}
	return below
}

// countLeaves counts what addLeaves would list.
func countLeaves(v any, depth int) (n int) {
	switch t := v.(type) {
	case map[string]any:
		if len(t) > 0 && depth < maxDepth {
			for _, e := range t {
				n += countLeaves(e, depth+1)
			}
			return n
		}
	case []any:
		if len(t) > 0 && depth < maxDepth {
			for _, e := range t {
				n += countLeaves(e, depth+1)
			}
			return n
		}
	}
	return 1
}

// describeValue describes a value. named says that the terms name it, and secret that its name is one of
// secrets.
func (i *Item) describeValue(v any, named, secret bool) {
	plain, why := "", WhyNested
	switch t := v.(type) {
	case string:
		i.Type, i.Size = "string", utf8.RuneCountInString(t)
		if why = whyWithheld(t, i.Size); why == "" {
			plain = strconv.Quote(t)
		}
	case json.Number:
		i.Type, plain = "number", t.String()
	case bool:
		i.Type, plain = "boolean", strconv.FormatBool(t)
	case nil:
		i.Type, plain = "null", "null"
	case map[string]any:
		i.Type, i.Size = "object", len(t)
	case []any:
		i.Type, i.Size = "array", len(t)
	default:
		i.Type = "unknown"
	}
	switch {
	case !named:
		why = ""
	case secret:
		why = WhyName
	case plain != "":
		i.Value = plain
		return
	}
	i.Withheld, i.Why = true, why
}

// whyWithheld is why a text is never shown; "" if it may be.
func whyWithheld(text string, size int) string {
	switch {
	case size > maxShownValue:
		return WhyLong
	case !isPrintable(text):
		return WhyForm
	case isSecretText(text):
		return WhySecret
	}
	return ""
}

var (
	plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,63}$`)

	// secretNames are parts of names of values that are never shown.
	secretNames = []string{"secret", "passw", "pwd", "token", "apikey", "api_key", "api-key", "auth", "credential", "cookie", "private", "session", "bearer", "signature", "otp", "pin_"}
	// secretForm matches the beginning of well-known credentials. machineRun matches a long run
	// without a space, as only a machine writes it.
	secretForm = regexp.MustCompile(`(?i)^(bearer |basic |sk-|ghp_|gho_|github_pat_|xox[abp]-|akia|eyj|-----begin)`)
	machineRun = regexp.MustCompile(`[A-Za-z0-9+/=_-]{24,}`)
)

// shownName returns a key as it is shown: a key that is not a plain word may be a value.
func shownName(key string) string {
	if !plainName.MatchString(key) || isSecretText(key) {
		return "?"
	}
	return key
}

func isSecretName(pointer string) bool {
	low := strings.ToLower(pointer)
	return slices.ContainsFunc(secretNames, func(part string) bool { return strings.Contains(low, part) })
}

func isSecretText(s string) bool {
	if secretForm.MatchString(s) {
		return true
	}
	run := machineRun.FindString(s)
	return strings.ContainsAny(run, "0123456789") && strings.ContainsFunc(run, unicode.IsLetter)
}

func isPrintable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
