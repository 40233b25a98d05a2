package aaep

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/correlation/catalogue"
	"github.com/countersign-dev/countersign/correlation/internal/secrets"
	"github.com/countersign-dev/countersign/events/aaep"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// hintSet is a set of checks of single events that no schema makes.
type hintSet uint16

const (
	versionInID hintSet = 1 << iota
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
	leadingMark
	secretText
	tokenText
)

// hintChecks are the checks of a hintSet, from its lowest bit.
var hintChecks = []struct {
	check, what string
	once        bool // reported once a session
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

// readableFields are the fields that people read. A chunk is not among them, because it may
// begin within a word.
var readableFields = []string{"summary_terse", "summary_normal", "summary_detailed", "description", "args_summary", "request_text",
	"output_summary", "error_message", "remediation_hint", "partial_result", "action", "consequence", "question", "context", "reason"}

var versionSuffix = regexp.MustCompile(`[-_]v?[0-9]+\.[0-9]+`)

// readHints finds the hints of an event.
func readHints(e *aaep.Event) hintSet {
	h := sizeHints(e) | textHints(e)
	id, version := e.Producer.AgentID, e.Producer.AgentVersion
	h.addIf(versionInID, (version != "" && strings.Contains(id, version)) || strings.Contains(id, ".") && versionSuffix.MatchString(id))
	switch p := e.Payload.(type) {
	case *aaep.ToolCompleted:
		h.addIf(noErrorMessage, p.ErrorMessage == "" && (p.Status == "error" || p.Status == "timeout"))
		h.addIf(noSummary, p.Summary == "")
	case *aaep.AwaitingConfirmation:
		h |= confirmationHints(p)
	case *aaep.AwaitingClarification:
		h.addIf(oddDefault, p.DefaultResponse != nil && !acceptsAnswer(p, *p.DefaultResponse))
		h.addIf(oddTimeout, isOutside(p.TimeoutSeconds, [2]int64{60, 300}))
		h.addIf(noSummary, p.Summary == "")
	case *aaep.StateChanged:
		h.addIf(noSummary, p.Summary == "")
	case *aaep.ProgressUpdated:
		h.addIf(noSummary, p.Summary == "")
	case *aaep.HandoffRequested:
		h.addIf(noSummary, p.Summary == "")
	}
	return h
}

func (h *hintSet) addIf(bit hintSet, is bool) {
	if is {
		*h |= bit
	}
}

func sizeHints(e *aaep.Event) hintSet {
	var h hintSet
	h.addIf(tooLarge, len(e.Raw) > maxBytes)
	h.addIf(tooWide, e.Doc.Len() > maxFields)
	for v := range e.Doc.All() {
		deep, long := valueExtent(v, maxDepth+1)
		h.addIf(tooDeep, deep > maxDepth)
		h.addIf(longText, long > maxString)
	}
	return h
}

// valueExtent says how deep a value is nested, and how long its longest text is, in
// bytes. Below most levels it does not look.
func valueExtent(v strictjson.Value, most int) (deep, long int) {
	switch v.Kind() {
	case strictjson.KindString:
		return 0, len(v.Text())
	case strictjson.KindObject, strictjson.KindArray:
	default:
		return 0, 0
	}
	if most > 0 {
		for child := range v.All() {
			d, l := valueExtent(child, most-1)
			deep, long = max(deep, d), max(long, l)
		}
	}
	return deep + 1, long
}

func textHints(e *aaep.Event) hintSet {
	var h hintSet
	spoken := false
	tokens := bytes.Contains(e.Raw, replyToken)
	for _, key := range readableFields {
		s := e.Doc.MemberText(key)
		if s == "" {
			continue
		}
		spoken = true
		r, _ := utf8.DecodeRuneInString(s)
		h.addIf(tokenText, tokens && showsToken(s))
		h.addIf(leadingMark, r >= 0x300 && unicode.Is(unicode.M, r))
	}
	h.addIf(secretText, secrets.MayContain(e.Raw) && holdsSecret(e))
	h.addIf(noLanguage, spoken && e.Language == "")
	return h
}

var replyToken = []byte("rpl_")

// showsToken reports whether a text for people shows a reply token, which only the replying
// subscriber may know (AAEP 6.2.4).
func showsToken(s string) bool {
	_, rest, found := strings.Cut(s, string(replyToken))
	r, _ := utf8.DecodeRuneInString(rest)
	return found && r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r))
}

// holdsSecret reports whether an event holds a credential.
func holdsSecret(e *aaep.Event) bool {
	_, found := secrets.Find(e.Tree())
	return found
}

// recommendedTimeouts are the recommended times to answer, in seconds (AAEP 6.4.2).
var recommendedTimeouts = map[[2]bool]map[string][2]int64{
	{true}:  {"high": {180, 600}, "medium": {60, 180}},
	{false}: {"low": {30, 90}, "": {30, 90}},
}

func confirmationHints(p *aaep.AwaitingConfirmation) hintSet {
	var h hintSet
	final := p.IsIrreversible()
	safe := p.RiskLevel == "" || p.RiskLevel == "low"
	h.addIf(riskyDefault, p.DefaultDecision == "accept" && ((final && safe) || (!final && p.RiskLevel == "high")))
	h.addIf(customReplies, slices.ContainsFunc(p.AllowedReplies, func(r string) bool { return r != decisionAccept && r != decisionReject }))
	if span, known := recommendedTimeouts[[2]bool{final}][p.RiskLevel]; known {
		h.addIf(oddTimeout, isOutside(p.TimeoutSeconds, span))
	}
	h.addIf(noSummary, p.Summary == "")
	return h
}

func isTrue(b *bool) bool { return b != nil && *b }

func isOutside(seconds *int64, span [2]int64) bool {
	return seconds != nil && (*seconds < span[0] || *seconds > span[1])
}

// acceptsAnswer reports whether a question permits a text as its answer.
func acceptsAnswer(p *aaep.AwaitingClarification, response string) bool {
	if len(p.AcceptedResponseKinds) == 0 && len(p.Choices) == 0 {
		return true
	}
	if slices.Contains(p.Choices, response) {
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
			return false // not among the choices
		}
		return true
	})
}

// EventHints returns the hints of an event without a session, except those that are reported
// once a session.
func EventHints(e *Event) []*catalogue.Finding {
	r := reports{givenHints: ^hintSet(0)}
	r.addHints(e)
	return r.findingList
}

// EventFindings returns the checks that a message breaks by itself. A reply breaks none.
func EventFindings(e *Event) []*catalogue.Finding {
	switch {
	case e.IsHandshake():
		var none Negotiations
		return none.Negotiate(e)
	case e.Token() != "" && e.Subscription() != "":
		return nil
	}
	return EventHints(e)
}
