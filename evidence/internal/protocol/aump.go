package protocol

import (
	"bytes"
	"strings"
)

// maxProtected is the greatest number of protected fields of one event.
const maxProtected = 256

var aumpNeverStored = mergeRules(
	neverStored(Protected, "private_notes reservation_price_minor target_price_minor opening_offer_minor concession_policy walk_away_conditions "+
		"chain_of_thought reasoning payment_credential payment_credentials payment_token transcript", "mandate"),
	map[string]Rule{
		"content": {Detector: Protected, Within: "disclosures"},
		"summary": {Detector: Protected, Within: "proposed_action"},
	})

// aumpRules are the rules that an AUMP event makes itself.
type aumpRules struct {
	noTexts   bool                // the mandate allows no texts at all
	isMandate bool                // the event is a mandate
	protected map[string][]string // pointers of protected fields, by last token
}

// inspectAUMP reads the event's own protected fields and retention.
func inspectAUMP(root any) ExtraRules {
	event, _ := root.(map[string]any)
	if data, ok := event["data"].(map[string]any); ok && event["specversion"] != nil {
		event = data
	}
	var n aumpRules
	head, _ := event["aump"].(map[string]any)
	n.isMandate = head["type"] == "mandate"
	privacy, _ := event["privacy"].(map[string]any)
	n.noTexts = privacy["retention"] == "none" || privacy["retention"] == "hashes"
	negotiation, _ := event["negotiation"].(map[string]any)
	for _, list := range []any{negotiation["protected_fields"], privacy["protected_fields"]} {
		n.addProtected(list)
	}
	return n.find
}

// addProtected adds a list of dotted names.
func (n *aumpRules) addProtected(list any) {
	names, _ := list.([]any)
	for _, v := range names {
		name, _ := v.(string)
		if name == "" || len(name) > maxKey || len(n.protected) >= maxProtected {
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

// mandateParts are the members of a mandate that are private to its principal.
var mandateParts = map[string]bool{"principal": true, "purpose": true, "preferences": true, "negotiation": true, "escalation": true}

func (n *aumpRules) find(key string, path []byte) (Rule, bool) {
	for _, pointer := range n.protected[key] {
		if bytes.HasSuffix(path, []byte(pointer)) {
			return Rule{Detector: Protected}, true
		}
	}
	if n.isMandate && mandateParts[key] {
		return Rule{Detector: Protected, Names: true}, true
	}
	return Rule{Detector: Protected, Names: true}, n.noTexts && (key == "summary" || key == "metadata")
}
