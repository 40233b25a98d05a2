package redact

import (
	"bytes"
	"slices"
	"strings"
)

const protocolAANA = "aana"

// neverStoreRule says what becomes of the value of one key.
type neverStoreRule struct {
	detector string
	names    bool   // an object keeps the names of its members
	within   string // only below a member of this name
}

// neverStoreTable are, by protocol, the keys whose values its specification says
// must not be kept in an audit trail. They are compared to the letter, at any
// depth. Texts, numbers, arrays and objects are taken out; booleans and null say
// nothing and stay.
var neverStoreTable = map[string]map[string]neverStoreRule{
	protocolAANA: neverStoreKeys(NeverStore,
		"prompt user_request request candidate candidate_action candidate_answer draft_response available_evidence evidence constraints "+
			"safe_response output full_tool_arguments raw_tool_arguments",
		"proposed_arguments arguments tool_arguments"),
	"tool":    aiocNeverStored,
	"handoff": aiocNeverStored,
	"aump": mergeRules(
		neverStoreKeys(Protected, "private_notes reservation_price_minor target_price_minor opening_offer_minor concession_policy walk_away_conditions "+
			"chain_of_thought reasoning payment_credential payment_credentials payment_token transcript", "mandate"),
		map[string]neverStoreRule{
			"content": {detector: Protected, within: "disclosures"},
			"summary": {detector: Protected, within: "proposed_action"},
		}),
}

var aiocNeverStored = neverStoreKeys(NeverStore,
	"contextSnapshot question response items promptText prompt rawArguments argsCanonicalJson canonicalPayloadJson payloadCanonicalJson errorMessage messages",
	"runContext parsedArguments arguments handoffPayload payload")

// neverStoreKeys makes rows of names: of the first ones the whole value goes, of the
// others an object's values.
func neverStoreKeys(detector, whole, values string) map[string]neverStoreRule {
	t := map[string]neverStoreRule{}
	for name := range strings.FieldsSeq(whole) {
		t[name] = neverStoreRule{detector: detector}
	}
	for name := range strings.FieldsSeq(values) {
		t[name] = neverStoreRule{detector: detector, names: true}
	}
	return t
}

func mergeRules(a, b map[string]neverStoreRule) map[string]neverStoreRule {
	for k, v := range b {
		a[k] = v
	}
	return a
}

// neverStoreRules is what must not be kept of one event.
type neverStoreRules struct {
	enabled   bool
	aana      bool
	rows      map[string]neverStoreRule
	noTexts   bool                // AUMP: the mandate allows no words at all
	isMandate bool                // AUMP: the event is a mandate
	protected map[string][]string // AUMP: pointers of protected fields, by last token
}

// neverStoreFor reads what the event itself says about it: of AUMP, its protected
// fields and its retention.
func neverStoreFor(protocol string, root any) neverStoreRules {
	n := neverStoreRules{rows: neverStoreTable[protocol], aana: protocol == protocolAANA}
	if n.enabled = n.rows != nil; protocol != "aump" {
		return n
	}
	event, _ := root.(map[string]any)
	if data, ok := event["data"].(map[string]any); ok && event["specversion"] != nil {
		event = data
	}
	head, _ := event["aump"].(map[string]any)
	n.isMandate = head["type"] == "mandate"
	privacy, _ := event["privacy"].(map[string]any)
	n.noTexts = privacy["retention"] == "none" || privacy["retention"] == "hashes"
	negotiation, _ := event["negotiation"].(map[string]any)
	for _, list := range []any{negotiation["protected_fields"], privacy["protected_fields"]} {
		n.addProtected(list)
	}
	return n
}

// addProtected takes a list of dotted names.
func (n *neverStoreRules) addProtected(list any) {
	names, _ := list.([]any)
	for _, v := range names {
		name, _ := v.(string)
		if name == "" || len(name) > 4*maxIdent || len(n.protected) >= maxFields {
			continue
		}
		if n.protected == nil {
			n.protected = map[string][]string{}
		}
		pointer := "/" + strings.ReplaceAll(name, ".", "/")
		last := name[strings.LastIndexByte(name, '.')+1:]
		n.protected[last] = append(n.protected[last], pointer)
	}
}

// mandateParts are the members of a mandate that are its principal's own affair.
var mandateParts = map[string]bool{"principal": true, "purpose": true, "preferences": true, "negotiation": true, "escalation": true}

// findRule finds the row for a key; path is that of the value.
func (n *neverStoreRules) findRule(key string, path []byte) (neverStoreRule, bool) {
	if row, listed := n.rows[key]; listed && (row.within == "" || bytes.Contains(path, []byte("/"+row.within+"/"))) {
		return row, true
	}
	if n.aana {
		return neverStoreRule{detector: NeverStore}, isSensitiveKey(key)
	}
	for _, pointer := range n.protected[key] {
		if bytes.HasSuffix(path, []byte(pointer)) {
			return neverStoreRule{detector: Protected}, true
		}
	}
	if n.isMandate && mandateParts[key] {
		return neverStoreRule{detector: Protected, names: true}, true
	}
	return neverStoreRule{detector: Protected, names: true}, n.noTexts && (key == "summary" || key == "metadata")
}

// redactForbidden takes out a member that the protocol says must never be stored. The
// walker stands at it.
func (w *documentWalker) redactForbidden(m map[string]any, name, key string, v any) bool {
	row, found := w.never.findRule(key, w.path)
	if !found {
		return false
	}
	if d, marked := v.(declaredValue); marked {
		if d.detector != PolicyField {
			return false
		}
		v = d.v
	}
	switch v := v.(type) {
	case nil, bool:
		m[name] = v
		return true
	case string:
		if v == "" || IsPlaceholder(v) {
			return false
		}
	case map[string]any:
		if row.names && len(v) <= maxIdent {
			w.redactContents(row.detector, v)
			m[name] = v
			return true
		}
		if len(v) == 0 {
			return false
		}
	case []any:
		if len(v) == 0 {
			return false
		}
	}
	mark, drop := w.redactWhole(row.detector, v)
	if m[name] = mark; drop {
		delete(m, name)
	}
	return true
}

// redactContents takes out the values of an object and leaves their names, as far as
// those hold nothing.
func (w *documentWalker) redactContents(detector string, m map[string]any) {
	var odd []string
	for k, v := range m {
		if len(w.findSpans(k)) > 0 {
			odd = append(odd, k)
			continue
		}
		w.redactContent(detector, m, k, v)
	}
	slices.Sort(odd)
	for _, k := range odd {
		v := m[k]
		if name, kept := w.redactKey(m, k); kept {
			w.redactContent(detector, m, name, v)
		}
	}
}

// redactContent takes out m's value v, whose name is k.
func (w *documentWalker) redactContent(detector string, m map[string]any, k string, v any) {
	if d, marked := v.(declaredValue); marked {
		v = d.v
	}
	switch v.(type) {
	case nil, bool:
		m[k] = v
		return
	}
	at := w.push(k)
	defer w.pop(at)
	mark, drop := w.redactWhole(detector, v)
	if m[k] = mark; drop {
		delete(m, k)
	}
}

// sensitiveParts are what AANA calls sensitive in a key: as parts between
// underscores.
var sensitiveParts = []string{"api_key", "auth_token", "bearer_token", "client_secret", "password", "private_account_id", "raw_token", "secret", "session_token"}

func isSensitiveKey(key string) bool {
	if len(key) > 4*maxIdent {
		key = key[:4*maxIdent]
	}
	key = "_" + strings.ToLower(key) + "_"
	for _, part := range sensitiveParts {
		if strings.Contains(key, "_"+part+"_") {
			return true
		}
	}
	return false
}

// accountKinds stand before the underscore of what AANA takes for the id of a
// private account.
var accountKinds = []string{"acct", "account", "customer", "user", "card", "payment"}

// findAccountIDs adds what AANA takes for ids of private accounts: customer_4f8a2e7d.
func findAccountIDs(s string, spans []Span) []Span {
	for i := 0; i < len(s) && len(spans) <= 2*maxSpans; i++ {
		next := strings.IndexByte(s[i:], '_')
		if next < 0 {
			break
		}
		i += next
		to := runEnd(s, i+1, alnum)
		if to-i <= 8 {
			continue
		}
		for _, kind := range accountKinds {
			if from := i - len(kind); from >= 0 && matchesLiteral(s[from:i], kind, true) && (from == 0 || byteClass[s[from-1]]&alnum == 0) {
				spans = append(spans, Span{from, to, PrivateAccount})
			}
		}
		i = to - 1
	}
	return spans
}
