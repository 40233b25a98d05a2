package build

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
	policies "github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// Reasons of a record without a body, besides the codes of strictjson.
const (
	ReasonForeignSubject    = "foreign_subject"     // the subject is none of the log
	ReasonInvalidCloudEvent = "invalid_cloudevent"  // a structured CloudEvent does not decode
	ReasonTooMany           = "too_many_redactions" // the body holds more redactions than a record may have
	ReasonRedactionFailed   = "redaction_failed"    // the tenant's redaction policy cannot be used, or redaction failed
)

// Keys gives the keys that records need. TenantKey returns the tenant's digest key
// (digest.Master.Tenant), at least digest.KeySize bytes. SessionSecret returns a random key
// of digest.KeySize bytes for the commitments and digests of a session, or, for the
// session "", for the commitments of the tenant's records without a session. The builder
// calls SessionSecret only when the record does not hold the whole body. The key must be
// durable before SessionSecret returns it.
type Keys interface {
	TenantKey(tenant string) []byte
	SessionSecret(tenant, session string) ([]byte, error)
}

// OneKey is one key for everything, for records that are not stored.
type OneKey []byte

func (k OneKey) TenantKey(string) []byte                      { return k }
func (k OneKey) SessionSecret(string, string) ([]byte, error) { return k, nil }

// Built is a record with its canonical text and hash. The record may share memory with
// the text, and its headers and body with the message. Quarantine reports that the record
// has no body and that the raw body belongs in the tenant's quarantine. RedactionFindings
// lists the codes of findings about the record's redaction.
type Built struct {
	Record            evidence.Record
	Canonical         []byte
	Hash              [32]byte
	Quarantine        bool
	RedactionFindings []string
}

// Head is the head of the record's session after this record, or the zero Head when the
// record belongs to no session.
func (b Built) Head() evidence.Head {
	if b.Record.SessionIndex == nil {
		return evidence.Head{}
	}
	return evidence.Head{Index: *b.Record.SessionIndex, Hash: b.Hash}
}

// Row is the record as it is stored. It shares the text of b, which must not change.
func (b Built) Row() evidence.Row {
	r := b.Record
	// Callers must not change the canonical text, so it is not copied.
	text := unsafe.String(unsafe.SliceData(b.Canonical), len(b.Canonical))
	return evidence.Row{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
		BrokerTime: r.BrokerTime.Time, BodyDigest: r.BodyDigest, Record: text, RecordHash: b.Hash}
}

// Builder makes the records of one shard. It holds no state except pooled workspaces and is
// safe for concurrent use.
type Builder struct {
	shard      string
	space      subject.Space
	policies   Policies
	classes    Classes
	document   documentFunc // nil: redact.Document
	workspaces *sync.Pool   // of *workspace
}

// NewBuilder makes a builder for a shard. The shard's name has the form
// "<stream>@<its creation, UTC, nanoseconds>".
func NewBuilder(shard string, space subject.Space) (*Builder, error) {
	if !tree.ValidShard(shard) {
		return nil, fmt.Errorf("%w: %.80q", ErrShard, shard)
	}
	return &Builder{shard: shard, space: space, workspaces: newWorkspacePool()}, nil
}

// ChainSession returns the session of the chain that m's record will belong to, so that the
// caller can fetch the heads of a batch before it builds the batch. An error is about the
// caller's keys.
func (b *Builder) ChainSession(m events.LogMessage, keys Keys) (events.SessionID, error) {
	w := b.getWorkspace()
	defer b.workspaces.Put(w)
	sc, err := b.readScope(w, m, keys)
	return sc.Key, err
}

// LogSession returns the session of a message as the log names it. The message's digests
// are made with the secret of this session.
func (b *Builder) LogSession(m events.LogMessage) events.SessionID {
	sc := scope.Of(b.space, m.Subject)
	if sc.Kind != evidence.KindApproval {
		return sc.Key
	}
	body, _ := strictjson.Parse(m.Body, strictjson.DefaultLimits)
	return sessionOf(sc, body)
}

// readScope reads a message's subject, and an approval's session out of its body.
func (b *Builder) readScope(w *workspace, m events.LogMessage, keys Keys) (sc recordScope, err error) {
	if sc = w.scopeOf(b.space, m.Subject); sc.hasSecret {
		if sc, err = b.maskScope(&w.checker, sc, m.Subject, keys); err != nil {
			return sc, err
		}
	}
	if sc.Kind != evidence.KindApproval {
		return sc, nil
	}
	body, _ := strictjson.Parse(m.Body, strictjson.DefaultLimits)
	sc.Key, sc.logSession = sessionOf(sc.Scope, body), sessionOf(sc.Scope, body)
	sc.Key, err = maskedSession(&w.checker, sc.Key, bodySession(body), keys)
	return sc, err
}

// Build makes the record of one message. head is the head of the session that ChainSession
// returns. Any content of a message makes one record. An error means that the caller's
// input is wrong: a message that no broker can have sent, or a missing key. Build does not
// change m; the result may share m's headers.
func (b *Builder) Build(m events.LogMessage, head evidence.Head, keys Keys) (Built, error) {
	w := b.getWorkspace()
	defer b.workspaces.Put(w)
	sc, err := b.readScope(w, m, keys)
	if err != nil {
		return Built{}, fmt.Errorf("record %d: %w", m.Seq, err)
	}
	return b.buildRecord(w, sc, m, head, keys)
}

func (b *Builder) buildRecord(w *workspace, sc recordScope, m events.LogMessage, head evidence.Head, keys Keys) (Built, error) {
	if !isValidMessage(m) {
		return Built{}, fmt.Errorf("%w: sequence %d, time %s", ErrMessage, m.Seq, m.Time)
	}
	r := recordRedactor{builder: b, workspace: w, scope: sc, message: m, sessionID: sc.Key, logSession: sc.logSession, keys: keys}
	r.choosePolicy()
	r.loadRetentionClass()
	body := r.readBody()
	headers, hits := r.redactAll(&body)
	rec := evidence.Record{V: evidence.Version, Shard: b.shard, Seq: m.Seq, Tenant: r.sessionID.Tenant, Session: r.sessionID.Session, Kind: body.kind,
		Subject: sc.subject, Headers: headers, BrokerTime: events.At(m.Time), Reason: body.reason}
	if id := r.policyID(); id != policies.BuiltinID {
		rec.RedactionPolicy = id
	}
	linkRecord(&rec, head)
	if err := r.fillRecord(&rec, body, append(body.hits, hits...)); err != nil {
		return Built{}, fmt.Errorf("record %d: %w", m.Seq, err)
	}
	text, hash, err := rec.EncodeAndHash()
	if err != nil {
		return Built{}, fmt.Errorf("record %d: %w", m.Seq, err)
	}
	return Built{Record: rec, Canonical: text, Hash: hash, Quarantine: body.reason != "", RedactionFindings: r.collectFindings(body, hits)}, nil
}

// recordBody is the body of a record that is being built.
type recordBody struct {
	kind    string
	text    []byte         // the canonical form, if it is known; then tree is nil
	unclean redact.Unclean // the members to redact, if tree is nil
	tree    any
	hits    []redact.Hit
	reason  string // why there is no body in the record
}

// readBody reads the body of the message, and sets a reason if the record can hold no body.
func (r *recordRedactor) readBody() recordBody {
	if r.scope.SubjectClass == "" {
		return recordBody{kind: evidence.KindUnparseable, reason: ReasonForeignSubject}
	}
	root, err := strictjson.Read(r.message.Body, strictjson.DefaultLimits)
	r.root = root
	var bad *strictjson.Error
	if errors.As(err, &bad) {
		return recordBody{kind: evidence.KindUnparseable, reason: string(bad.Code)}
	}
	if unclean, ok := r.findUnclean(root); ok && unclean.Len() > 0 {
		return recordBody{kind: r.scope.Kind, unclean: unclean}
	} else if ok {
		r.workspace.text = root.AppendCanonical(r.workspace.text[:0])
		return recordBody{kind: r.scope.Kind, text: r.workspace.text}
	}
	tree := root.Tree()
	if r.scope.SubjectClass == subject.Events && isStructuredCloudEvent(r.message.Header) && !validCloudEvent(tree) {
		return recordBody{kind: evidence.KindUnparseable, reason: ReasonInvalidCloudEvent}
	}
	return recordBody{kind: r.scope.Kind, tree: tree}
}

func (c *recordBody) withhold(reason string, raw []byte) {
	c.tree, c.text, c.reason = nil, nil, reason
	c.hits = []redact.Hit{{Path: "/body", Detector: redact.Withheld, Text: string(raw)}}
}

// fillRecord adds body, digest and commitments to a record.
func (r *recordRedactor) fillRecord(rec *evidence.Record, c recordBody, hits []redact.Hit) (err error) {
	raw := r.message.Body
	if rec.Body = c.text; c.text == nil {
		if rec.Body, err = canonical.Append(make([]byte, 0, len(raw)+64), c.tree); err != nil {
			return err
		}
	}
	rec.Redactions = []evidence.Redaction{}
	if len(hits) == 0 && c.reason == "" {
		rec.BodyDigest = digest.Plain(raw)
		return r.secretErr
	}
	if rec.BodyDigest, err = r.bodyDigest(rec); err != nil || len(hits) == 0 {
		return err
	}
	key := r.loadSessionSecret()
	if r.secretErr != nil {
		return r.secretErr
	}
	rec.Redactions, err = commitHits(key, rec.Seq, hits, r.policyID())
	return err
}

// bodyDigest is the digest of a body that its record does not hold whole. The key is the
// session's secret, and the digest proves nothing once that is destroyed; a record
// without a session uses the tenant's key.
func (r *recordRedactor) bodyDigest(rec *evidence.Record) (string, error) {
	if rec.Session != "" {
		key := r.loadSessionSecret()
		return digest.NewSession(key).Digest(r.message.Body), r.secretErr
	}
	key := r.keys.TenantKey(rec.Tenant)
	if len(key) < digest.KeySize {
		return "", fmt.Errorf("%w: the digest key of tenant %.64q", evidence.ErrKeys, rec.Tenant)
	}
	return digest.Keyed(key, r.message.Body), r.secretErr
}

// isServiceRecordBody reports whether a body, parsed and raw, is a record that Countersign
// itself writes on a subject of sc's class. Anything else on such a subject is
// redacted like a producer's event.
func isServiceRecordBody(sc recordScope, root strictjson.Value, raw []byte) bool {
	decode := serviceRecords[sc.Kind+"/"+sc.ControlKind]
	if decode == nil && sc.Kind == evidence.KindControl {
		decode = decodeAs[map[string]json.RawMessage]
	}
	return decode != nil && root.Kind() == strictjson.KindObject && decode(raw) == nil
}

// serviceRecords are the types of service records, by kind of record and, of control records, their kind.
var serviceRecords = map[string]func(raw []byte) error{
	evidence.KindDecision + "/":                       decodeAs[events.Decision],
	evidence.KindCall + "/":                           decodeAs[events.Call],
	evidence.KindFinding + "/":                        decodeAs[events.Finding],
	evidence.KindApproval + "/":                       decodeAs[events.Approval],
	evidence.KindControl + "/" + events.ControlTick:   decodeAs[events.Tick],
	evidence.KindControl + "/" + events.ControlCursor: decodeAs[events.Cursor],
	evidence.KindControl + "/" + events.ControlPolicy: decodeAs[events.PolicyChange],
	evidence.KindControl + "/" + events.ControlKey:    decodeAs[events.KeyRecord],
}

func decodeAs[T any](raw []byte) error {
	return strictjson.Unmarshal(raw, new(T), strictjson.RejectUnknown)
}

// isStructuredCloudEvent reports whether the headers say that the body is a whole
// CloudEvent.
func isStructuredCloudEvent(h map[string][]string) bool {
	for name, values := range h {
		if !strings.EqualFold(name, "content-type") {
			continue
		}
		for _, v := range values {
			media, _, _ := strings.Cut(v, ";")
			if strings.EqualFold(strings.TrimSpace(media), "application/cloudevents+json") {
				return true
			}
		}
	}
	return false
}

// sessionOf returns the scope's session; for an approval, the one that its body names.
func sessionOf(sc scope.Scope, body any) events.SessionID {
	key := sc.Key
	if sc.Kind == evidence.KindApproval {
		key.Session = scope.RecordName(bodySession(body))
	}
	return key
}

// bodySession is the session that the body of an approval names.
func bodySession(body any) string {
	m, _ := body.(map[string]any)
	session, _ := m["session"].(string)
	return session
}

// isValidMessage reports whether a broker can have sent m.
func isValidMessage(m events.LogMessage) bool {
	return m.Seq > 0 && m.Seq <= tree.MaxSeq && !m.Time.IsZero() && m.Time.UTC().Year() > 0 && m.Time.UTC().Year() < 10000
}

// linkRecord sets the record's place in its session: the one after head.
func linkRecord(r *evidence.Record, head evidence.Head) {
	if r.Session == "" {
		return
	}
	index := head.Index + 1
	r.SessionIndex = &index
	if head.Index > 0 {
		prev := hex.EncodeToString(head.Hash[:])
		r.SessionPrev = &prev
	}
}

// recordScope is what a message's subject says about its record. The scope is in the form that
// the evidence may hold.
type recordScope struct {
	scope.Scope
	hasSecret  bool             // session or event type holds a credential
	logSession events.SessionID // the session as the log names it
	subject    string           // the subject in the form that the evidence may hold
}
