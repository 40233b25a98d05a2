package format

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// aanaDecisions pairs the decisions on AANA prechecks with their requests.
type aanaDecisions struct {
	out     *lineWriter
	pending *pendingRequests
	write   func(aanaDecision) error
}

func aanaEncoder(w *lineWriter, write func(aanaDecision) error) encoder {
	return &aanaDecisions{w, newPendingRequests(w), write}
}

func (e *aanaDecisions) add(i Item) error {
	r := i.Record
	switch r.Kind {
	case evidence.KindRequest:
		if e.out.protocolOf(r) == subject.ProtoAANA {
			e.pending.put(r)
		}
	case evidence.KindDecision:
		d, ok := readRecord[events.Decision](e.out, r)
		if !ok || d.Protocol != subject.ProtoAANA {
			return nil
		}
		req, _ := e.pending.pop(d.DecisionID) // without it the line has fewer values
		return e.write(newAANADecision(i, d, req.body))
	}
	return nil
}

func (e *aanaDecisions) end() error {
	e.pending.countRemaining()
	return nil
}

// aanaDecision is what evidence holds of one decision under the contract.
type aanaDecision struct {
	events.Decision
	item     Item
	body     map[string]any // of the request, redacted; nil if there is none
	route    string
	codes    []string // of the contract's evaluator
	blockers []string
}

// aanaRoutes are the contract's routes with the score that its index gives each (aana.md 2, step 5).
var aanaRoutes = map[string]float64{"accept": 0.95, "ask": 0.72, "defer": 0.45, "refuse": 0.15}

var aanaRouteOf = map[events.Verdict]string{events.Allow: "accept", events.Ask: "ask", events.Defer: "defer", events.Deny: "refuse"}

func newAANADecision(i Item, d events.Decision, body map[string]any) aanaDecision {
	a := aanaDecision{Decision: d, item: i, body: body, route: d.NativeVerdict, codes: []string{}, blockers: []string{}}
	if _, known := aanaRoutes[a.route]; !known {
		a.route = cmp.Or(aanaRouteOf[d.Verdict], "refuse")
	}
	var others []string
	for _, r := range d.Reasons {
		switch {
		case r.Action != "": // without effect on the verdict
		case strings.HasPrefix(r.Evaluator, subject.ProtoAANA):
			a.codes = addOnce(a.codes, r.Code)
		default:
			others = addOnce(others, r.Code)
		}
	}
	if d.ObservedOnly() {
		a.codes = addOnce(a.codes, "not_enforced") // the route is none that the policies gave
	}
	if a.route == "accept" { // a reviewer's approval clears the blockers
		return a
	}
	for _, c := range a.codes {
		switch {
		case aanaBlockers[c]:
			a.blockers = addOnce(a.blockers, c)
		case !aanaReasons[c]:
			a.blockers = addOnce(a.blockers, aanaSchemaFailed)
		}
	}
	if len(a.blockers) == 0 && !slices.Contains(a.codes, "runtime_recommended_stricter_route") {
		a.blockers = append(a.blockers, others...) // a tool policy was stricter than the contract
	}
	return a
}

func addOnce(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func passOrFail(pass bool) string {
	if pass {
		return "pass"
	}
	return "fail"
}

// finalGate is the final gate; candidateGate is the contract's own. Everything that the contract does
// not accept has a blocker (aana.md 2, step 3).
func (a aanaDecision) finalGate() string { return passOrFail(a.route == "accept") }

func (a aanaDecision) candidateGate() string { return passOrFail(len(a.blockers) == 0) }

func (a aanaDecision) blockersContaining(marks ...string) []string {
	out := []string{}
	for _, b := range a.blockers {
		if slices.ContainsFunc(marks, func(m string) bool { return strings.Contains(b, m) }) {
			out = append(out, b)
		}
	}
	return out
}

// missingEvidence lists the blockers about missing evidence (aana.md 1.3).
func (a aanaDecision) missingEvidence() []string {
	return a.blockersContaining("missing", "evidence", "authorization", "citation", "source")
}

// isPublishable reports whether no code keeps the decision out of public logs (aana.md 4). A decision
// without its request is not publishable.
func (a aanaDecision) isPublishable() bool {
	return a.body != nil && !slices.ContainsFunc(a.codes, func(c string) bool { return aanaUnpublishable[c] || !aanaBlockers[c] && !aanaReasons[c] })
}

// enumValue is a field of the request, or nil if its value is not one of the contract's.
func (a aanaDecision) enumValue(name string, values map[string]bool) *string {
	if v := textAt(a.body, name); values[v] {
		return &v
	}
	return nil
}

func (a aanaDecision) authorizationState() *string {
	return a.enumValue("authorization_state", aanaStates)
}
func (a aanaDecision) toolCategory() *string { return a.enumValue("tool_category", aanaCategories) }
func (a aanaDecision) riskDomain() *string   { return a.enumValue("risk_domain", aanaDomains) }

// evidenceSources lists the identifiers of the evidence, as the redacted request has them.
func (a aanaDecision) evidenceSources() []string {
	out := []string{}
	refs, _ := valueAt(a.body, "evidence_refs").([]any)
	for _, ref := range refs {
		id, isText := ref.(string)
		if !isText {
			id = textAt(ref, "source_id")
		}
		if id == "" || len(id) > maxIdentifier {
			id = "[left_out]"
		}
		out = append(out, id)
	}
	return out
}

const (
	maxIdentifier   = 128
	maxArgumentKeys = 64
	maxArgumentKey  = 64
	hiddenKey       = "[redacted_sensitive_key]"
)

var identifier = regexp.MustCompile(`^[\pL_$][\pL\pN_.$:\- ]*$`)

// argumentKeys lists the names of the arguments, sorted. Evidence has masked their values; names that
// reveal the kind of secret are hidden too.
func (a aanaDecision) argumentKeys() []string {
	args, _ := valueAt(a.body, "proposed_arguments").(map[string]any)
	out := []string{}
	for _, k := range slices.Sorted(maps.Keys(args)) {
		low := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(k)), "-", "_")
		sensitive := slices.ContainsFunc(aanaSensitiveKeys, func(part string) bool { return strings.Contains(low, part) })
		if sensitive || len(k) > maxArgumentKey || !identifier.MatchString(k) {
			k = hiddenKey
		}
		if out = addOnce(out, k); len(out) == maxArgumentKeys {
			break
		}
	}
	slices.Sort(out)
	return out
}
