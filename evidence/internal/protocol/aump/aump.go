// Package aump has the row of AUMP at the stage of evidence.
package aump

import (
	"bytes"
	"maps"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// Row is the row of AUMP.
var Row = &storable.Row{
	Keep: storable.Members(map[storable.KeepRule]string{
		storable.KeepIdentifier: "aump.version aump.type id mandate_ref.id mandate_ref.hash mandate_ref.version sequence created_at event_type result actor.role actor.id " +
			"action.type proposed_action.type proposed_action.commitment privacy.retention privacy.contains_private_fields privacy.redaction " +
			"hashes.event_hash hashes.previous_event_hash hashes.transcript_hash decision evaluated_at",
		storable.KeepIdentifiers: "reason_codes",
		storable.KeepGuardList:   "privacy.protected_fields negotiation.protected_fields",
		storable.KeepSummary:     "summary", // evidence event: summary is what may be kept under summary_only
	}),
	KeepHeaders: storable.SetOf("aump-mandate-id aump-mandate-hash aump-mandate-version"), NeverStore: neverStored, Inspect: inspect,
}

// maxProtected is the greatest number of protected fields of one event.
const maxProtected = 256

var neverStored = mergeRules(
	storable.NeverStored(storable.Protected, "private_notes reservation_price_minor target_price_minor opening_offer_minor concession_policy walk_away_conditions "+
		"chain_of_thought reasoning payment_credential payment_credentials payment_token transcript", "mandate"),
	map[string]storable.Rule{
		"content": {Detector: storable.Protected, Within: "disclosures"},
		"summary": {Detector: storable.Protected, Within: "proposed_action"},
	})

// eventRules are the rules that an event makes itself.
type eventRules struct {
	noTexts   bool                // the mandate allows no texts at all
	isMandate bool                // the event is a mandate
	protected map[string][]string // pointers of protected fields, by last token
}

// inspect reads the event's own protected fields and retention.
func inspect(root any) storable.ExtraRules {
	event, _ := root.(map[string]any)
	if data, ok := event["data"].(map[string]any); ok && event["specversion"] != nil {
		event = data
	}
	var n eventRules
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
func (n *eventRules) addProtected(list any) {
	names, _ := list.([]any)
	for _, v := range names {
		name, _ := v.(string)
		if name == "" || len(name) > storable.MaxKey || len(n.protected) >= maxProtected {
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

func (n *eventRules) find(key string, path []byte) (storable.Rule, bool) {
	for _, pointer := range n.protected[key] {
		if bytes.HasSuffix(path, []byte(pointer)) {
			return storable.Rule{Detector: storable.Protected}, true
		}
	}
	if n.isMandate && mandateParts[key] {
		return storable.Rule{Detector: storable.Protected, Names: true}, true
	}
	return storable.Rule{Detector: storable.Protected, Names: true}, n.noTexts && (key == "summary" || key == "metadata")
}

func mergeRules(a, b map[string]storable.Rule) map[string]storable.Rule {
	maps.Copy(a, b)
	return a
}
