package evidence

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// Row is one row of the table evidence.
type Row struct {
	Shard, Tenant, Session, Kind, Subject string
	Seq                                   uint64
	BrokerTime                            time.Time
	BodyDigest                            string
	Record                                string // the canonical text
	RecordHash                            [32]byte
}

// rowChecker checks what can be said of single rows and of the chains of their
// sessions.
type rowChecker struct {
	rep   *Report
	space subject.Space
	heads map[SessionKey]Head
	trust *trust
}

// row checks one row and follows its session's chain. It returns the record
// unless the text is none.
func (c *rowChecker) row(r Row) (Record, bool) {
	if HashRecord([]byte(r.Record)) != r.RecordHash {
		c.rep.add(CodeHash, r.Seq, "record_hash", "the text hashes to %x, stored is %x", short(HashRecord([]byte(r.Record))), short(r.RecordHash))
	}
	rec, err := ParseRecord([]byte(r.Record))
	if err != nil {
		c.rep.add(CodeNotCanonical, r.Seq, "record", "%v", err)
		c.skip(r)
		return rec, false
	}
	c.columns(r, rec)
	c.chain(r, rec)
	sc := scopeOf(c.space, rec.Subject)
	c.subject(rec, sc)
	c.body(rec)
	c.redactions(r, rec)
	c.trust.row(rec, sc)
	return rec, true
}

func short(h [32]byte) []byte { return h[:8] }

// skip goes on in the chain behind a text that cannot be read, by the stored
// hash, so that one broken row is one problem.
func (c *rowChecker) skip(r Row) {
	key := SessionKey{r.Tenant, r.Session}
	if r.Session != "" {
		c.heads[key] = Head{Index: c.heads[key].Index + 1, Hash: r.RecordHash}
	}
}

func (c *rowChecker) columns(r Row, rec Record) {
	for _, col := range [...]struct{ name, row, rec string }{
		{"shard", r.Shard, rec.Shard},
		{"seq", strconv.FormatUint(r.Seq, 10), strconv.FormatUint(rec.Seq, 10)},
		{"tenant", r.Tenant, rec.Tenant},
		{"session", r.Session, rec.Session},
		{"kind", r.Kind, rec.Kind},
		{"subject", r.Subject, rec.Subject},
		{"broker_time", events.At(r.BrokerTime).String(), rec.BrokerTime.String()},
		{"body_digest", r.BodyDigest, rec.BodyDigest},
	} {
		if col.row != col.rec {
			c.rep.add(CodeColumn, r.Seq, col.name, "the column holds %.80q, the record %.80q", col.row, col.rec)
		}
	}
}

func (c *rowChecker) chain(r Row, rec Record) {
	if rec.Session == "" {
		if rec.SessionIndex != nil || rec.SessionPrev != nil {
			c.rep.add(CodeChain, r.Seq, "session_index", "a record without a session has a place in one")
		}
		return
	}
	key := SessionKey{rec.Tenant, rec.Session}
	head := c.heads[key]
	want := Record{Session: rec.Session}
	want.chain(head)
	if rec.SessionIndex == nil || *rec.SessionIndex != *want.SessionIndex {
		c.rep.add(CodeChain, r.Seq, "session_index", "session %.64q: index %s follows %d", rec.Session, number(rec.SessionIndex), head.Index)
	}
	if text(rec.SessionPrev) != text(want.SessionPrev) {
		c.rep.add(CodeChain, r.Seq, "session_prev", "session %.64q: the record before has hash %.16s, this one names %.16s", rec.Session, text(want.SessionPrev), text(rec.SessionPrev))
	}
	next := Head{Index: *want.SessionIndex, Hash: r.RecordHash}
	if rec.SessionIndex != nil {
		next.Index = *rec.SessionIndex
	}
	c.heads[key] = next
}

func number(n *uint64) string {
	if n == nil {
		return "null"
	}
	return strconv.FormatUint(*n, 10)
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// subject checks that kind, tenant and session are what the subject says.
func (c *rowChecker) subject(rec Record, sc scope) {
	if rec.Kind != sc.kind && rec.Kind != KindUnparseable {
		c.rep.add(CodeSubject, rec.Seq, "kind", "kind %.20q on a subject of kind %q", rec.Kind, sc.kind)
		return
	}
	want := sc.key
	if rec.Kind == KindApproval {
		var body struct {
			Session string `json:"session"`
		}
		_ = json.Unmarshal(rec.Body, &body) // another type there is another session
		want.Session = tokenValue(body.Session)
	}
	if rec.Tenant != want.Tenant {
		c.rep.add(CodeSubject, rec.Seq, "tenant", "the record says %.64q, its subject %.64q", rec.Tenant, want.Tenant)
	}
	if rec.Session != want.Session {
		c.rep.add(CodeSubject, rec.Seq, "session", "the record says %.64q, its subject %.64q", rec.Session, want.Session)
	}
}

// body checks that body, reason, kind and the form of the digest fit together.
func (c *rowChecker) body(rec Record) {
	null := bytes.Equal(rec.Body, []byte("null"))
	switch {
	case rec.Reason != "" && !null:
		c.rep.add(CodeBody, rec.Seq, "reason", "there is a reason for having no body, and a body")
	case rec.Kind == KindUnparseable && rec.Reason == "":
		c.rep.add(CodeBody, rec.Seq, "reason", "unparseable without a reason")
	}
	form := digest.PrefixPlain
	if len(rec.Redactions) > 0 || rec.Reason != "" {
		form = digest.PrefixKeyed
	}
	if !hexDigest(rec.BodyDigest, form) {
		c.rep.add(CodeBody, rec.Seq, "body_digest", "not of the form %s<64 hex digits>", form)
	}
}

func hexDigest(s, prefix string) bool {
	tail, ok := strings.CutPrefix(s, prefix)
	b, err := hex.DecodeString(tail)
	return ok && err == nil && len(b) == 32 && tail == strings.ToLower(tail)
}

// redactions checks that every redaction left its mark where it says.
func (c *rowChecker) redactions(r Row, rec Record) {
	if len(rec.Redactions) == 0 {
		return
	}
	var tree any
	if err := json.Unmarshal([]byte(r.Record), &tree); err != nil {
		c.rep.add(CodeNotCanonical, r.Seq, "record", "the text does not decode")
		return
	}
	for i, red := range rec.Redactions {
		if !hexDigest(red.Commitment, digest.PrefixKeyed) {
			c.rep.add(CodeRedaction, r.Seq, "redactions/"+strconv.Itoa(i), "the commitment is not of the form %s<64 hex digits>", digest.PrefixKeyed)
		}
		if !marked(tree, red, rec) {
			c.rep.add(CodeRedaction, r.Seq, "redactions/"+strconv.Itoa(i), "nothing at %.120q was replaced by %s", red.Path, redact.Placeholder(red.Detector))
		}
	}
}

func marked(tree any, red Redaction, rec Record) bool {
	action, known := redact.ParseAction(cmp.Or(red.Action, redact.Mask.String()))
	switch {
	case !known || action == redact.Allow:
		return false
	case red.Path == "/body" && red.Detector == redact.Withheld:
		return rec.Reason != ""
	case red.Path == "/headers" && (red.Detector == redact.TooMany || red.Detector == redact.Withheld):
		return len(rec.Headers) == 0
	}
	value, last, ok := resolve(tree, red.Path)
	if action == redact.Drop {
		return !ok || value == nil || value == "" || redact.Marked(last, red.Detector, redact.Mask)
	}
	if !ok {
		return false
	}
	s, _ := value.(string)
	return redact.Marked(s, red.Detector, action) || redact.Marked(last, red.Detector, action)
}

// resolve follows a JSON pointer and returns the value and the last token.
func resolve(v any, pointer string) (value any, last string, ok bool) {
	if !strings.HasPrefix(pointer, "/") {
		return nil, "", false
	}
	for token := range strings.SplitSeq(pointer[1:], "/") {
		last = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch at := v.(type) {
		case map[string]any:
			if v, ok = at[last]; !ok {
				return nil, "", false
			}
		case []any:
			i, err := strconv.Atoi(last)
			if err != nil || i < 0 || i >= len(at) {
				return nil, "", false
			}
			v = at[i]
		default:
			return nil, "", false
		}
	}
	return v, last, true
}
