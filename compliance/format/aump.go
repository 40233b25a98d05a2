package format

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// AUMPEventType is the event_type that fits every decision under a mandate.
const AUMPEventType = "material_action_evaluated"

// Retention classes (aump.md 1.1).
const (
	retainNone    = "none"
	retainSummary = "summary_only"
	retainHashes  = "hashes"
	retainFull    = "full_transcript"
)

// retentionRules says what an event may hold under its mandate's class. No class allows a transcript
// or a private field, because evidence has none.
var retentionRules = map[string]struct {
	redaction          string
	action, paths, ids bool // the action's type; the paths of reasons; identifiers and keyed digests
}{
	retainNone:    {"summary", false, false, false},
	retainSummary: {"summary", true, true, false},
	retainHashes:  {"hash", true, true, true},
	retainFull:    {"field_redacted", true, true, true},
}

// aumpEncoder writes evidence events (aump.md 1.3, 2.7): for each decision under a mandate one of each
// type that the mandate requires (aumpTypes), and for each event that a runtime has published one of its type, if the
// mandate requires it and no decision is evidence of it. They are numbered and chained for each mandate from the beginning
// of the export.
type aumpEncoder struct {
	out     *lineWriter
	pending *pendingRequests
	heads   map[string]*aumpHead // by mandate
}

// maxMandates is the greatest number of mandates in one export.
const maxMandates = 100_000

// aumpHead is the last event of a mandate's chain.
type aumpHead struct {
	sequence int64
	hash     string
}

func newAUMP(w *lineWriter) encoder {
	return &aumpEncoder{w, newPendingRequests(w), map[string]*aumpHead{}}
}

func (e *aumpEncoder) end() error {
	e.pending.countRemaining()
	return nil
}

func (e *aumpEncoder) add(i Item) error {
	r := i.Record
	switch r.Kind {
	case evidence.KindRequest:
		if e.out.protocolOf(r) == subject.ProtoAUMP {
			e.pending.put(r)
		}
	case evidence.KindDecision:
		d, ok := readRecord[events.Decision](e.out, r)
		if !ok || d.Protocol != subject.ProtoAUMP {
			return nil
		}
		req, _ := e.pending.pop(d.DecisionID)
		return e.writeDecision(i, d, req.body)
	case evidence.KindEvent:
		if e.out.protocolOf(r) == subject.ProtoAUMP {
			return e.writeReport(i)
		}
	}
	return nil
}

// writeReport writes that a runtime has reported an event. Its own event is not repeated: redaction would break its
// hashes, and its texts are free.
func (e *aumpEncoder) writeReport(i Item) error {
	body := object(i.Record)
	name := textAt(body, "event_type")
	ref, ok := aumpRef(events.Decision{}, body)
	if !ok || isDecided(name) {
		return nil
	}
	id := ref["id"].(string)
	m, known := e.mandate(id, ref["hash"].(string))
	if !known || !slices.Contains(m.EventsRequired, name) {
		return nil
	}
	keeps, from := retentionRules[m.Retention], proofOf(i, "")
	p, err := e.out.Space.Parse(i.Record.Subject)
	if err != nil {
		return nil // protocolOf has parsed it
	}
	event := map[string]any{
		"aump": map[string]any{"version": aump.Version, "type": "evidence_event"}, "id": "aump_ev_" + from.RecordHash, "mandate_ref": ref,
		"created_at": i.Record.BrokerTime.String(), "event_type": name, "summary": "The runtime reported an event of this type.", "result": "recorded",
		"actor":   aumpActor(events.Decision{Source: safeName(p.Publisher)}, keeps.ids),
		"privacy": map[string]any{"retention": m.Retention, "contains_private_fields": false, "redaction": keeps.redaction},
	}
	if keeps.ids {
		event["metadata"] = from.members()
	}
	return e.writeChained(event, id)
}

// mandate returns what is known of a mandate; of an unknown one the least is kept.
func (e *aumpEncoder) mandate(id, hash string) (m Mandate, known bool) {
	if e.out.Mandate != nil {
		if found, is := e.out.Mandate(id, hash); is && retentionRules[found.Retention].redaction != "" {
			return found, true
		}
	}
	return Mandate{Retention: retainNone}, false
}

// aumpRef is the reference to the mandate in the decision, or, if the decision has none, in the
// request.
func aumpRef(d events.Decision, body map[string]any) (ref map[string]any, ok bool) {
	id, hash := textAt(body, "mandate_ref", "id"), textAt(body, "mandate_ref", "hash")
	if d.Mandate != nil {
		id, hash = d.Mandate.ID, d.Mandate.Hash
	}
	hash, ok = aump.NormaliseHash(hash)
	version := cmp.Or(textAt(body, "mandate_ref", "version"), aump.Version)
	return map[string]any{"id": id, "hash": hash, "version": version}, ok && id != ""
}

func (e *aumpEncoder) writeDecision(i Item, d events.Decision, body map[string]any) error {
	ref, ok := aumpRef(d, body)
	if !ok {
		e.out.countSkipped(SkippedNoMandate)
		return nil
	}
	id, hash := ref["id"].(string), ref["hash"].(string)
	m, known := e.mandate(id, hash)
	types := aumpTypesOf(d, body, m.EventsRequired)
	if len(types) == 0 {
		e.out.countSkipped(SkippedNotRequired)
	}
	for _, name := range types {
		event := aumpEvent(i, d, ref, m)
		if event["event_type"] = name; name != AUMPEventType {
			event["id"] = "aump_ev_" + d.DecisionID + "_" + name
		}
		if !known {
			event["metadata"] = map[string]any{"countersign_retention": "mandate unknown, least kept"}
		}
		if err := e.writeChained(event, id); err != nil {
			return err
		}
	}
	return nil
}

// aumpResults maps Countersign's verdicts to AUMP's results.
var aumpResults = map[events.Verdict]string{events.Allow: "allowed", events.Ask: "requires_escalation", events.Defer: "requires_escalation", events.Deny: "denied"}

func aumpEvent(i Item, d events.Decision, ref map[string]any, m Mandate) map[string]any {
	keeps := retentionRules[m.Retention]
	result := cmp.Or(aumpResults[d.Verdict], "denied")
	event := map[string]any{
		"aump": map[string]any{"version": aump.Version, "type": "evidence_event"}, "id": "aump_ev_" + d.DecisionID, "mandate_ref": ref,
		"created_at": d.DecidedAt.String(), "summary": "The evaluation ended in: " + result + "." + observedSummary(d), "result": result,
		"actor": aumpActor(d, keeps.ids), "reason_codes": decidingCodes(d),
		"privacy": map[string]any{"retention": m.Retention, "contains_private_fields": false, "redaction": keeps.redaction},
	}
	if keeps.paths {
		event["paths"] = aumpPaths(d)
	}
	if keeps.action && d.Tool != "" {
		event["action"] = map[string]any{"type": d.Tool, "summary": "Not kept: evidence has no free text of an action."}
	}
	if keeps.ids {
		event["metadata"] = proofOf(i, d.DecisionID).members("args_digest", d.ArgsDigest)
		if d.ToolCallID != "" {
			event["downstream_refs"] = []any{map[string]any{"protocol": "countersign", "id": d.ToolCallID}}
		}
	}
	return event
}

// observedSummary says of an allow that the policies would not have given that it is none of theirs.
func observedSummary(d events.Decision) string {
	if !d.ObservedOnly() {
		return ""
	}
	return " Policies were observed and not enforced; enforced, it would have ended in: " + cmp.Or(aumpResults[d.EnforcedVerdict()], "denied") + "."
}

// aumpActor is the agent if it is known and may be named, otherwise the runtime.
func aumpActor(d events.Decision, ids bool) map[string]any {
	if ids && d.Agent != "" {
		return map[string]any{"role": "agent", "id": d.Agent}
	}
	return map[string]any{"role": "runtime", "id": cmp.Or(d.Source, "unknown")}
}

// aumpPaths lists the places in mandate and request that reasons point to.
func aumpPaths(d events.Decision) []string {
	out := []string{}
	for _, r := range d.Reasons {
		if r.Action == "" && strings.HasPrefix(r.Path, "$") {
			out = addOnce(out, r.Path)
		}
	}
	return out
}

// members are the proof as metadata of an event, with more of them.
func (p recordProof) members(more ...string) map[string]any {
	return scalarMap(append(more, "decision_id", p.Decision, "session", p.Session, "shard", p.Shard, "seq", formatUint(p.Seq), "record_hash", p.RecordHash)...)
}

func scalarMap(pairs ...string) map[string]any {
	out := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out[pairs[i]] = pairs[i+1]
		}
	}
	return out
}

// writeChained numbers an event, links it to the previous one and writes it.
func (e *aumpEncoder) writeChained(event map[string]any, mandate string) error {
	head := e.heads[mandate]
	if head == nil {
		if len(e.heads) == maxMandates { // a request can name mandates that do not exist
			return fmt.Errorf("%w: more than %d mandates are named in it", ErrTooMuch, maxMandates)
		}
		head = &aumpHead{}
		e.heads[mandate] = head
	}
	head.sequence++
	event["sequence"] = head.sequence
	hashes := map[string]any{}
	if head.hash != "" {
		hashes["previous_event_hash"] = head.hash
	}
	event["hashes"] = hashes
	tree, err := reparseJSON(event)
	if err != nil {
		return err
	}
	if head.hash, err = aump.EventHash(tree); err != nil {
		return fmt.Errorf("hashing an evidence event: %w", err)
	}
	hashes["event_hash"] = head.hash
	return e.out.writeJSON(event)
}

// reparseJSON converts a value to the form in which a reader decodes its JSON.
func reparseJSON(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing a line: %w", err)
	}
	return strictjson.ParseObject(b, strictjson.DefaultLimits)
}
