package aaepsession

import (
	"bytes"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/internal/secrets"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// hints are the checks of one event that it fails and no schema makes, as bits,
// so that an event that fails none costs nothing.
type hints uint16

const (
	versionInID hints = 1 << iota
	noLanguage
	tooLarge
	tooWide
	tooDeep
	longText
	riskyDefault
	oddDefault
	noErrorMessage
	customReplies
	oddTimeout
	noSummary
	looseMark
	secretText
	tokenText
)

// hintChecks say what a bit means, from the lowest.
var hintChecks = []struct {
	check, what string
	once        bool // said once a session
}{
	{check: "AAEP-C-011"},
	{check: "AAEP-C-014", once: true},
	{check: "AAEP-C-020", what: "it is over 64 KiB"},
	{check: "AAEP-C-020", what: "it has over 32 fields"},
	{check: "AAEP-C-020", what: "it is nested over 8 levels deep"},
	{check: "AAEP-C-020", what: "a text in it is over 16 KiB"},
	{check: "AAEP-C-033"},
	{check: "AAEP-C-035"},
	{check: "AAEP-C-037"},
	{check: "AAEP-C-039"},
	{check: "AAEP-C-040"},
	{check: "AAEP-C-041", once: true},
	{check: "AAEP-C-042"},
	{check: "AAEP-C-038"},
	{check: "AAEP-C-189"},
}

// Limits of AAEP 3.7.
const (
	maxBytes, maxFields, maxDepth, maxString = 64 << 10, 32, 8, 16 << 10
)

// texts are the fields that people read. A chunk goes on where the one before
// it ended, so it is not among them.
var texts = []string{"summary_terse", "summary_normal", "summary_detailed", "description", "args_summary", "request_text",
	"output_summary", "error_message", "remediation_hint", "partial_result", "action", "consequence", "question", "context", "reason"}

var versioned = regexp.MustCompile(`[-_]v?[0-9]+\.[0-9]+`)

// read finds the hints of an event.
func read(e *aaep.Event, member func(key string) string) hints {
	h := size(e) | wording(e, member)
	id, version := e.Producer.AgentID, e.Producer.AgentVersion
	h.add(versionInID, (version != "" && strings.Contains(id, version)) || strings.Contains(id, ".") && versioned.MatchString(id))
	switch p := e.Payload.(type) {
	case *aaep.ToolCompleted:
		h.add(noErrorMessage, p.ErrorMessage == "" && (p.Status == "error" || p.Status == "timeout"))
		h.add(noSummary, p.Summaries.Normal == "")
	case *aaep.AwaitingConfirmation:
		h |= confirmation(p)
	case *aaep.AwaitingClarification:
		h.add(oddDefault, p.DefaultResponse != nil && !answers(p, *p.DefaultResponse))
		h.add(oddTimeout, outside(p.TimeoutSeconds, [2]int64{60, 300}))
		h.add(noSummary, p.Summaries.Normal == "")
	case *aaep.StateChanged:
		h.add(noSummary, p.Summaries.Normal == "")
	case *aaep.ProgressUpdated:
		h.add(noSummary, p.Summaries.Normal == "")
	case *aaep.HandoffRequested:
		h.add(noSummary, p.Summaries.Normal == "")
	}
	return h
}

func (h *hints) add(bit hints, is bool) {
	if is {
		*h |= bit
	}
}

func size(e *aaep.Event) hints {
	var h hints
	h.add(tooLarge, len(e.Raw) > maxBytes)
	h.add(tooWide, len(e.Tree) > maxFields)
	for _, v := range e.Tree {
		deep, long := extent(v, maxDepth+1)
		h.add(tooDeep, deep > maxDepth)
		h.add(longText, long > maxString)
	}
	return h
}

// extent says how deep a value is nested, and how long its longest text is, in
// bytes. Below most levels it does not look.
func extent(v any, most int) (deep, long int) {
	below := func(child any) {
		if most > 0 {
			d, l := extent(child, most-1)
			deep, long = max(deep, d), max(long, l)
		}
	}
	switch v := v.(type) {
	case string:
		return 0, len(v)
	case map[string]any:
		for _, child := range v {
			below(child)
		}
		return deep + 1, long
	case []any:
		for _, child := range v {
			below(child)
		}
		return deep + 1, long
	}
	return 0, 0
}

func wording(e *aaep.Event, member func(key string) string) hints {
	var h hints
	spoken := false
	tokens := bytes.Contains(e.Raw, replyToken)
	for _, key := range texts {
		s := member(key)
		if s == "" {
			continue
		}
		spoken = true
		r, _ := utf8.DecodeRuneInString(s)
		h.add(tokenText, tokens && showsToken(s))
		h.add(looseMark, r >= 0x300 && unicode.Is(unicode.M, r))
	}
	h.add(secretText, secrets.Suspect(e.Raw) && holdsSecret(e))
	h.add(noLanguage, spoken && (e.Localization == nil || e.Localization.PrimaryLanguage == ""))
	return h
}

var replyToken = []byte("rpl_")

// showsToken tells whether a text that people read shows a reply token, which is
// for who replies (6.2.4).
func showsToken(s string) bool {
	_, rest, found := strings.Cut(s, string(replyToken))
	r, _ := utf8.DecodeRuneInString(rest)
	return found && r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// holdsSecret looks for credentials in everything that an event says.
func holdsSecret(e *aaep.Event) bool {
	tree := e.Tree
	if tree == nil {
		tree, _ = strictjson.ParseObject(e.Raw, strictjson.DefaultLimits)
	}
	_, found := secrets.In(tree)
	return found
}

// timeouts are the recommended times to answer, in seconds (6.4.2).
var timeouts = map[[2]bool]map[string][2]int64{
	{true}:  {"high": {180, 600}, "medium": {60, 180}},
	{false}: {"low": {30, 90}, "": {30, 90}},
}

func confirmation(p *aaep.AwaitingConfirmation) hints {
	var h hints
	final := lasting(p)
	safe := p.RiskLevel == "" || p.RiskLevel == "low"
	h.add(riskyDefault, p.DefaultDecision == "accept" && ((final && safe) || (!final && p.RiskLevel == "high")))
	h.add(customReplies, slices.ContainsFunc(p.AllowedReplies, func(r string) bool { return r != accept && r != reject }))
	if span, known := timeouts[[2]bool{final}][p.RiskLevel]; known {
		h.add(oddTimeout, outside(p.TimeoutSeconds, span))
	}
	h.add(noSummary, p.Summaries.Normal == "")
	return h
}

// lasting tells whether an action cannot be undone (A-07 of the digest: either
// field says so).
func lasting(p *aaep.AwaitingConfirmation) bool {
	return isTrue(p.Irreversible) || p.Reversibility == "irreversible"
}

func isTrue(b *bool) bool { return b != nil && *b }

func outside(seconds *int64, span [2]int64) bool {
	return seconds != nil && (*seconds < span[0] || *seconds > span[1])
}

// answers tells whether a text is one of the answers that a question accepts.
func answers(p *aaep.AwaitingClarification, response string) bool {
	if len(p.AcceptedResponseKinds) == 0 && len(p.Choices) == 0 {
		return true
	}
	if slices.ContainsFunc(p.Choices, func(c aaep.Choice) bool { return c.Value == response }) {
		return true
	}
	return slices.ContainsFunc(p.AcceptedResponseKinds, func(kind string) bool {
		switch kind {
		case "yes_no":
			return slices.Contains([]string{"yes", "no", "true", "false"}, strings.ToLower(response))
		case "numeric":
			_, err := strconv.ParseFloat(response, 64)
			return err == nil
		case "multiple_choice":
			return false // it is none of the choices
		}
		return true
	})
}

// hint reports the checks that an event fails by itself.
func (s *Session) hint(e *Event) {
	for left := e.hints; left != 0; left &= left - 1 {
		bit := left & -left
		c := hintChecks[bits.TrailingZeros16(uint16(bit))]
		if c.once && s.hinted&bit != 0 {
			continue
		}
		s.hinted |= bit
		s.breach(c.check, c.what, e.ref())
	}
}

// Hints reports the checks that an event of no session fails by itself, but for
// those that are said once a session.
func Hints(e *Event) []*catalogue.Breach {
	s := Session{hinted: ^hints(0)}
	s.hint(e)
	return s.out
}

// Alone reports the checks that a message fails by itself, whatever its session or
// its publisher's negotiations are. A reply fails none.
func Alone(e *Event) []*catalogue.Breach {
	switch {
	case e.IsHandshake():
		var none Negotiations
		return none.Negotiate(e)
	case e.Token() != "" && e.Subscription() != "":
		return nil
	}
	return Hints(e)
}

// skew compares an event's time with that of its receipt. A recording does not say
// when its events were received: it is known only that they were by Event.Until.
func (s *Session) skew(e *Event) {
	if e.Time.IsZero() || s.said&saidSkew != 0 {
		return
	}
	received := e.At
	if e.Recorded && !e.Until.IsZero() {
		received = e.Until
	}
	if e.Time.Sub(received) > maxAhead || e.At.Sub(e.Time) > maxBehind {
		s.said |= saidSkew
		s.breach("AAEP-C-067", "", e.ref()).Severity = events.SeverityInfo
	}
}
