// Package aump writes evidence events of AUMP mandates.
package aump

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/compliance/format/encode"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/aump"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
)

// EventType is the event_type that fits every decision under a mandate.
const EventType = "material_action_evaluated"

// Evidence has the evidence events.
var Evidence = encode.Format{Make: newEncoder, About: "decisions under AUMP mandates, and what runtimes report", Mandates: true,
	Note: "Calls of other protocols under a mandate have lines, too, without an action: evidence does not say which one the mandate was asked for. The mandate's retention class is read from the mandates bucket (operator's credentials) by id and hash; an unknown mandate counts as none, said in metadata. " +
		"Under none an event has mandate, result, codes and time, and no identifiers but its own; under summary_only also the type of the action, and paths; under hashes and full_transcript " +
		"also the agent, the call, the keyed digest of the arguments and the record of evidence. Evidence events that runtimes publish are not repeated: redaction would break their hashes. That one was published is a line of its own (recorded), if the mandate lists its type and no decision is evidence of it.",
	Fields: []encode.Field{
		{Names: []string{"mandate_ref"}, From: "the decision, else the request. A request without a well-formed hash has no line"},
		{Names: []string{"event_type"}, From: "the action's type and the result, as far as the mandate's `events_required` lists the type; one decision may give several lines. Without a list `material_action_evaluated`. Allowed means permitted, not done. Of types that no decision is evidence of, a line with the result `recorded` for each event that the runtime published"},
		{Names: []string{"sequence", "hashes"}, From: "chained for each mandate from the beginning of the export; `event_hash` is over the event without it"},
		{Names: []string{"actor"}, From: "the agent, else the runtime"},
		{Names: []string{"privacy.retention"}, From: "the mandate's class; `contains_private_fields` is always false"},
		{Names: []string{"action.hash", "transcript_hash"}, From: "left out"},
	}}

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

// encoder writes evidence events (aump.md 1.3, 2.7): for each decision under a mandate one of each
// type that the mandate requires (evidenceTypes), and for each event that a runtime has published one of its type, if the
// mandate requires it and no decision is evidence of it. They are numbered and chained for each mandate from the beginning
// of the export.
type encoder struct {
	out     *encode.Writer
	pending *encode.Requests
	heads   map[string]*chainHead // by mandate
}

// maxMandates is the greatest number of mandates in one export.
const maxMandates = 100_000

// chainHead is the last event of a mandate's chain.
type chainHead struct {
	sequence int64
	hash     string
}

func newEncoder(w *encode.Writer) encode.Encoder {
	pending := encode.NewRequests(w, subject.ProtoAUMP)
	pending.Also = func(d events.Decision) bool { return d.Mandate != nil }
	return &encoder{w, pending, map[string]*chainHead{}}
}

func (e *encoder) End() error {
	e.pending.CountRemaining()
	return nil
}

func (e *encoder) Add(i encode.Item) error {
	if r := i.Record; r.Kind == evidence.KindEvent && e.out.ProtocolOf(r) == subject.ProtoAUMP {
		return e.writeReport(i)
	}
	return e.pending.Match(i.Record, func(d events.Decision, req encode.Request, _ bool) error {
		if d.Protocol != subject.ProtoAUMP {
			d.Tool = "" // it is no type of an action
		}
		return e.writeDecision(i, d, req.Body)
	})
}

// writeReport writes that a runtime has reported an event. Its own event is not repeated: redaction would break its
// hashes, and its texts are free.
func (e *encoder) writeReport(i encode.Item) error {
	body := encode.Object(i.Record)
	name := encode.TextAt(body, "event_type")
	ref, ok := refOf(events.Decision{}, body)
	if !ok || isDecided(name) {
		return nil
	}
	id := ref["id"].(string)
	m, known := e.mandate(id, ref["hash"].(string))
	if !known || !slices.Contains(m.EventsRequired, name) {
		return nil
	}
	keeps, from := retentionRules[m.Retention], encode.ProofOf(i, "")
	p, err := e.out.Space.Parse(i.Record.Subject)
	if err != nil {
		return nil // protocolOf has parsed it
	}
	event := map[string]any{
		"aump": map[string]any{"version": aump.Version, "type": "evidence_event"}, "id": "aump_ev_" + from.RecordHash, "mandate_ref": ref,
		"created_at": i.Record.BrokerTime.String(), "event_type": name, "summary": "The runtime reported an event of this type.", "result": "recorded",
		"actor":   actorOf(events.Decision{Source: encode.SafeName(p.Publisher)}, keeps.ids),
		"privacy": map[string]any{"retention": m.Retention, "contains_private_fields": false, "redaction": keeps.redaction},
	}
	if keeps.ids {
		event["metadata"] = from.Members()
	}
	return e.writeChained(event, id)
}

// mandate returns what is known of a mandate; of an unknown one the least is kept.
func (e *encoder) mandate(id, hash string) (m encode.Mandate, known bool) {
	if e.out.Mandate != nil {
		if found, is := e.out.Mandate(id, hash); is && retentionRules[found.Retention].redaction != "" {
			return found, true
		}
	}
	return encode.Mandate{Retention: retainNone}, false
}

// refOf is the reference to the mandate in the decision, or, if the decision has none, in the
// request.
func refOf(d events.Decision, body map[string]any) (ref map[string]any, ok bool) {
	id, hash := encode.TextAt(body, "mandate_ref", "id"), encode.TextAt(body, "mandate_ref", "hash")
	if d.Mandate != nil {
		id, hash = d.Mandate.ID, d.Mandate.Hash
	}
	hash, ok = aump.NormaliseHash(hash)
	version := cmp.Or(encode.TextAt(body, "mandate_ref", "version"), aump.Version)
	return map[string]any{"id": id, "hash": hash, "version": version}, ok && id != ""
}

func (e *encoder) writeDecision(i encode.Item, d events.Decision, body map[string]any) error {
	ref, ok := refOf(d, body)
	if !ok {
		e.out.CountSkipped(encode.SkippedNoMandate)
		return nil
	}
	id, hash := ref["id"].(string), ref["hash"].(string)
	m, known := e.mandate(id, hash)
	types := typesOf(d, body, m.EventsRequired)
	if len(types) == 0 {
		e.out.CountSkipped(encode.SkippedNotRequired)
	}
	for _, name := range types {
		event := newEvent(i, d, ref, m)
		if event["event_type"] = name; name != EventType {
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

// results maps Countersign's verdicts to AUMP's results.
var results = map[events.Verdict]string{events.Allow: "allowed", events.Ask: "requires_escalation", events.Defer: "requires_escalation", events.Deny: "denied"}

func newEvent(i encode.Item, d events.Decision, ref map[string]any, m encode.Mandate) map[string]any {
	keeps := retentionRules[m.Retention]
	result := cmp.Or(results[d.Verdict], "denied")
	event := map[string]any{
		"aump": map[string]any{"version": aump.Version, "type": "evidence_event"}, "id": "aump_ev_" + d.DecisionID, "mandate_ref": ref,
		"created_at": d.DecidedAt.String(), "summary": "The evaluation ended in: " + result + "." + observedSummary(d), "result": result,
		"actor": actorOf(d, keeps.ids), "reason_codes": encode.DecidingCodes(d),
		"privacy": map[string]any{"retention": m.Retention, "contains_private_fields": false, "redaction": keeps.redaction},
	}
	if keeps.paths {
		event["paths"] = pathsOf(d)
	}
	if keeps.action && d.Tool != "" {
		event["action"] = map[string]any{"type": d.Tool, "summary": "Not kept: evidence has no free text of an action."}
	}
	if keeps.ids {
		event["metadata"] = encode.ProofOf(i, d.DecisionID).Members("args_digest", d.ArgsDigest)
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
	return " Policies were observed and not enforced; enforced, it would have ended in: " + cmp.Or(results[d.EnforcedVerdict()], "denied") + "."
}

// actorOf is the agent if it is known and may be named, otherwise the runtime.
func actorOf(d events.Decision, ids bool) map[string]any {
	if ids && d.Agent != "" {
		return map[string]any{"role": "agent", "id": d.Agent}
	}
	return map[string]any{"role": "runtime", "id": cmp.Or(d.Source, "unknown")}
}

// pathsOf lists the places in mandate and request that reasons point to.
func pathsOf(d events.Decision) []string {
	out := []string{}
	for _, r := range d.Reasons {
		if r.Action == "" && strings.HasPrefix(r.Path, "$") {
			out = encode.AddOnce(out, r.Path)
		}
	}
	return out
}

// writeChained numbers an event, links it to the previous one and writes it.
func (e *encoder) writeChained(event map[string]any, mandate string) error {
	head := e.heads[mandate]
	if head == nil {
		if len(e.heads) == maxMandates { // a request can name mandates that do not exist
			return fmt.Errorf("%w: more than %d mandates are named in it", encode.ErrTooMuch, maxMandates)
		}
		head = &chainHead{}
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
	return e.out.WriteJSON(event)
}

// reparseJSON converts a value to the form in which a reader decodes its JSON.
func reparseJSON(v any) (map[string]any, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("writing a line: %w", err)
	}
	return strictjson.ParseObject(b, strictjson.DefaultLimits)
}
