package agenthook

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/correlation/fact"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// The declarations of publishers, as the admitter records them, and the checks of events
// against them.

// Bounds of one declaration.
const (
	maxReported  = 256 // reported types and publishers
	unknownHabit = 10  // answers of "unknown" that make a habit; AHP-013 gives no number
)

// Declarations holds the declarations of all tenants, as the last record has them.
type Declarations struct {
	findings         fact.Reporter             `snapshot:"-"` // not part of a snapshot
	byTenant         map[string][]*declaration // by tenant token
	reportedUnusable []fact.Sum                // unusable documents that were reported
	incomplete       changeParts               // a change whose last part has not come yet
}

// changeParts are the parts of a change so far.
type changeParts struct {
	digest    string
	part      int // the last one, 0 if there is none
	documents []events.PublisherDocument
}

// declaration is one manifest or registration, and what was seen of its publishers.
type declaration struct {
	digest                         string
	publisher, family              string // publisher as a token, "" for every publisher of the family
	notExposed                     map[string]bool
	failsClosed, statesLimitations bool
	actionGovernance               bool            // the publisher is registered for the action-governance profile
	partlyExposed                  map[string]bool // types that are exposed in part only, as it says
	silentOnFailMode               bool            // a registration that names no fail mode
	reported                       map[string]bool
	unknownAnswers                 map[string]int // events that answer "unknown", by publisher
}

// Configure sets what is not part of a snapshot.
func (ds *Declarations) Configure(r fact.Reporter) { ds.findings = r }

// Replace applies a change of the declarations, when its last part comes: then whole is true, and the documents are those of
// all parts, without those of tenants with a broken one.
func (ds *Declarations) Replace(change events.PublisherChange, m events.LogMessage) (documents []events.PublisherDocument, whole bool) {
	if !ds.collectParts(&change) {
		return nil, false
	}
	before := *ds
	ds.byTenant, ds.reportedUnusable = nil, nil
	broken := map[string]bool{}
	for _, d := range change.Documents {
		if d.Error != "" {
			broken[d.Tenant] = true
			ds.reportUnusableDocument(m, d, before.reportedUnusable)
		}
	}
	for _, d := range change.Documents {
		if d.Declares != nil && d.Declares.Source != "" && !broken[d.Tenant] { // as for the admitter: a tenant with a broken document has no declarations
			ds.add(subject.Escape(d.Tenant), before.carryOver(d))
		}
	}
	return slices.DeleteFunc(slices.Clone(change.Documents), func(d events.PublisherDocument) bool { return broken[d.Tenant] }), true
}

// collectParts adds the documents of the parts before to a last part, and reports whether the
// change is whole. Several admitters write the same change, and their parts can be mixed: the
// collection begins at any first part, and takes a later part from whichever of them it comes.
// The change that was begun last is therefore always completed.
func (ds *Declarations) collectParts(change *events.PublisherChange) bool {
	in := &ds.incomplete
	if change.Parts == 0 {
		*in = changeParts{}
		return true
	}
	switch {
	case change.Part == 1:
		*in = changeParts{digest: change.Digest}
	case change.Digest != in.digest || change.Part != in.part+1:
		return false
	}
	in.part = change.Part
	in.documents = append(in.documents, change.Documents...)
	if in.part < change.Parts {
		return false
	}
	change.Documents, *in = in.documents, changeParts{}
	return true
}

// reportUnusableDocument reports an unusable manifest or registration (AH-C-126), once for
// each content.
func (ds *Declarations) reportUnusableDocument(msg events.LogMessage, d events.PublisherDocument, before []fact.Sum) {
	kind, _, _ := strings.Cut(d.Name, ".")
	if kind != "manifest" && kind != "registration" {
		return
	}
	id := fact.SumOf(d.Tenant, d.Name, d.Digest)
	ds.reportedUnusable = append(ds.reportedUnusable, id)
	if slices.Contains(before, id) {
		return
	}
	f := &fact.Fact{Seq: msg.Seq, At: msg.Time, Protocol: subject.ProtoAgentHook, Origin: fact.OriginOf(d.Tenant, "", "")}
	ds.findings.ReportCheck("AH-C-126", f, id, fact.BoundID(strings.TrimSuffix(d.Error, ".")))
}

// carryOver makes a declaration, and keeps what was seen under an equal one.
func (ds *Declarations) carryOver(d events.PublisherDocument) *declaration {
	next := &declaration{
		digest: d.Digest, family: d.Declares.Source,
		failsClosed: d.Declares.FailMode == "fail_closed", statesLimitations: d.Declares.Limitations > 0,
	}
	if d.Declares.Publisher != "" {
		next.silentOnFailMode = d.Declares.FailMode == ""
		next.publisher = subject.Escape(d.Declares.Publisher)
	}
	next.notExposed, next.partlyExposed = nameSet(d.Declares.Absent), nameSet(d.Declares.Partial)
	next.actionGovernance = slices.Contains(d.Declares.Profiles, events.ProfileActionGovernance)
	for _, old := range ds.byTenant[subject.Escape(d.Tenant)] {
		if old.publisher == next.publisher && old.family == next.family && old.digest == next.digest {
			next.reported, next.unknownAnswers = old.reported, old.unknownAnswers
		}
	}
	return next
}

// nameSet is a set of names, nil if there are none.
func nameSet(names []string) map[string]bool {
	var set map[string]bool
	for _, name := range names {
		if set == nil {
			set = map[string]bool{}
		}
		set[name] = true
	}
	return set
}

func (ds *Declarations) add(tenant string, d *declaration) {
	if ds.byTenant == nil {
		ds.byTenant = map[string][]*declaration{}
	}
	ds.byTenant[tenant] = append(ds.byTenant[tenant], d)
}

// find returns the declaration for a publisher, nil if there is none. Its own registration
// comes before its family's manifest.
func (ds *Declarations) find(k fact.SourceSession, family string) *declaration {
	registered := false
	var general *declaration
	for _, d := range ds.byTenant[k.Tenant] {
		switch {
		case d.publisher == k.Source && d.family == family:
			return d
		case d.publisher == k.Source:
			registered = true
		case d.publisher == "" && d.family == family:
			general = d
		}
	}
	if registered {
		return nil
	}
	return general
}

// reportOnce reports whether something was not reported of a publisher before, and marks it as
// reported.
func (d *declaration) reportOnce(what, source string) bool {
	key := what + " " + source
	if d.reported[key] || len(d.reported) >= maxReported {
		return false
	}
	if d.reported == nil {
		d.reported = map[string]bool{}
	}
	d.reported[key] = true
	return true
}

// CheckDeclared compares an event with its publisher's declaration: its type (AH-C-127), its
// answers of "unknown" (AH-C-043), and its fail mode (AH-C-072). session is nil if the event
// has none.
func (ds *Declarations) CheckDeclared(w fact.Origin, f *fact.Fact, session *Session) {
	if EventOf(f) == nil || len(ds.byTenant) == 0 {
		return
	}
	d := ds.find(f.Key, EventOf(f).Family)
	if d == nil {
		return
	}
	if d.notExposed[EventOf(f).Type] && d.reportOnce(EventOf(f).Type, f.Key.Source) {
		ds.findings.ReportSessionFinding(f, w, fact.SingleEventFinding("AH-C-127", "its type is declared not exposed or planned", f))
	}
	if f.Kind == fact.KindFailOpen && d.failsClosed {
		found := fact.SingleEventFinding("AH-C-072", "a call was let pass without a verdict, and its publisher is registered to fail closed", f)
		found.Case = "fail_mode"
		ds.findings.ReportSessionFinding(f, w, found)
	}
	if EventOf(f).FailMode && d.silentOnFailMode && (session == nil || !session.StatesFailMode()) && d.reportOnce("fail mode", f.Key.Source) {
		found := fact.SingleEventFinding("AH-C-165", "its registration says nothing of its fail mode", f)
		found.Severity = events.SeverityInfo
		ds.findings.ReportSessionFinding(f, w, found)
	}
	if EventOf(f).AnswersUnknown && !d.statesLimitations && d.countUnknownAnswer(f.Key.Source) {
		ds.findings.ReportSessionFinding(f, w, fact.SingleEventFinding("AH-C-043", "ten times, and its manifest states no limitation", f))
	}
}

// ApplyRegistration sets on an event what its publisher is registered for. It MUST be called
// before the session applies the event.
func (ds *Declarations) ApplyRegistration(f *fact.Fact) {
	if len(ds.byTenant) == 0 {
		return
	}
	if d := ds.find(f.Key, EventOf(f).Family); d != nil && (d.actionGovernance || d.partlyExposed[EventOf(f).Type]) {
		EventOf(f).ApplyRegistration(d.actionGovernance, d.partlyExposed[EventOf(f).Type])
	}
}

// countUnknownAnswer counts an answer of "unknown", and reports whether there are too many.
func (d *declaration) countUnknownAnswer(source string) bool {
	if _, counted := d.unknownAnswers[source]; !counted && len(d.unknownAnswers) >= maxReported {
		return false
	}
	if d.unknownAnswers == nil {
		d.unknownAnswers = map[string]int{}
	}
	if d.unknownAnswers[source] <= unknownHabit {
		d.unknownAnswers[source]++
	}
	return d.unknownAnswers[source] == unknownHabit && d.reportOnce("unknown", source)
}
