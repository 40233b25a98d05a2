package evidence

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	policies "github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
)

// Policies gives the redaction policy of a tenant. An error means that the
// tenant has one that cannot be used: its bodies are withheld until it can.
type Policies func(tenant string) (*policies.Policy, error)

// WithPolicies gives a builder that redacts by the tenants' policies and writes
// into each record which one applied. f must be safe for several goroutines and
// never return a nil policy without an error.
func (b *Builder) WithPolicies(f Policies) *Builder {
	with := *b
	with.policies = f
	return &with
}

// Alarms: what somebody should hear of a record's redaction (Built.Alarms).
const (
	AlarmTooMany   = ReasonTooMany         // the body is withheld
	AlarmFailed    = ReasonRedactionFailed // the body is withheld
	AlarmHeaders   = "headers_withheld"    // all headers are
	AlarmInSubject = "secret_in_subject"   // the subject on the log holds a secret
)

type documentFunc func(root any, prefix string, declared []string, c redact.Config) (any, []redact.Hit, error)

// redaction is the redaction of one record.
type redaction struct {
	b     *Builder
	bench *workbench
	sc    scope
	m     events.LogMessage
	key   SessionKey
	keys  Keys
	named SessionKey // as the log names it: key, but for what a name may not show

	digests func(t redact.Treatment, detector, value string) string // in place of digest, for a comparison without keys
	policy  *policies.Policy                                        // nil: there are no policies
	broken  bool                                                    // the policy cannot be used
	echoes  *redact.Echoes

	ownKnown, isOwn bool // see own

	class    retention.Class
	classBy  string       // the id of the retention policy that says so
	withheld string       // the detector that stands for the class; "" if it withholds nothing
	seen     []redact.Hit // what redaction finds in an event that is withheld
	blind    bool         // or it could not be looked at

	session []byte // the session's key, once it was asked for
	keyErr  error
}

// choose finds the policy for the record. Only events are a tenant's own words;
// what stands on other subjects is redacted by the built-in rules.
func (r *redaction) choose() {
	if r.b.policies == nil || r.sc.class != subject.Events {
		return
	}
	p, err := r.b.policies(r.key.Tenant)
	if r.broken = err != nil || p == nil; !r.broken {
		r.policy = p
	}
}

// alarms gathers what somebody should hear of.
func (r *redaction) alarms(c content, hits []redact.Hit) (list []string) {
	if c.reason == ReasonTooMany || c.reason == ReasonRedactionFailed {
		list = append(list, c.reason)
	}
	for _, h := range hits {
		if h.Path == "/headers" {
			list = append(list, AlarmHeaders)
		}
	}
	if r.sc.class == subject.Events && r.inSubject() {
		list = append(list, AlarmInSubject)
	}
	return list
}

// redactAll redacts body and headers. What was found in one place and may not be
// released must not stand in another: if it does, all is redacted once more with
// that knowledge, and if it still does, withheld.
func (r *redaction) redactAll(c *content) (headers map[string][]string, hits []redact.Hit) {
	again := content{reason: c.reason, hits: c.hits, kind: c.kind}
	headers, hits = r.pass(c)
	r.echoes = redact.NewEchoes(slices.Concat(hits, c.hits, r.seen))
	if r.echoes == nil || !r.echoing(c, headers) && !(r.own() && len(c.hits) > 0) {
		return headers, hits
	}
	if again.reason == "" {
		again = r.b.read(r.sc, r.m)
	}
	*c = again
	if headers, hits = r.pass(c); r.echoing(c, headers) {
		if c.reason == "" {
			c.withhold(ReasonRedactionFailed, r.m.Body)
		}
		headers, hits = withheldHeaders(r.m.Header, redact.Withheld)
	}
	return headers, hits
}

// pass redacts headers and body once. A failure, a panic included, withholds
// what it was about; it never lets it pass.
func (r *redaction) pass(c *content) (headers map[string][]string, hits []redact.Hit) {
	r.body(c)
	defer func() {
		if recover() != nil {
			headers, hits = withheldHeaders(r.m.Header, redact.Withheld)
		}
	}()
	if r.broken {
		return withheldHeaders(r.m.Header, redact.Withheld)
	}
	if short, ok := r.shortHeaders(); ok {
		return short, nil
	}
	config := func(name string) redact.Config { return r.config(name, false) }
	if r.withheld != "" {
		return r.classedHeaders(config)
	}
	return redactHeaders(r.sc.kind, r.m.Header, config)
}

// body takes the secrets out of a parsed body.
func (r *redaction) body(c *content) {
	if c.reason != "" || c.text != nil {
		return
	}
	defer func() {
		if recover() != nil {
			c.withhold(ReasonRedactionFailed, r.m.Body)
		}
	}()
	var err error
	switch {
	case r.own() && maskable(r.sc.kind):
		r.ownTexts(c)
	case r.own():
		// Control records are kept as they are: services read them back.
	case r.broken:
		c.withhold(ReasonRedactionFailed, r.m.Body)
	case r.withheld != "":
		r.classed(c)
	default:
		err = r.usually(c)
	}
	if errors.Is(err, redact.ErrTooMuch) {
		c.withhold(ReasonTooMany, r.m.Body)
	} else if err != nil {
		c.withhold(ReasonRedactionFailed, r.m.Body)
	}
}

// usually redacts what stands in an event, or on another subject.
func (r *redaction) usually(c *content) (err error) {
	if r.sc.class == subject.Events && structured(r.m.Header) {
		return r.cloudEvent(c)
	}
	c.tree, c.hits, err = r.document(c.tree, "/body", redact.DeclaredFields(c.tree), r.config("", false))
	return err
}

func (r *redaction) document(root any, prefix string, declared []string, c redact.Config) (any, []redact.Hit, error) {
	if r.b.document == nil {
		return redact.Document(root, prefix, declared, c)
	}
	return r.b.document(root, prefix, declared, c)
}

// config is the policy's view of the body or of a header.
func (r *redaction) config(header string, inData bool) redact.Config {
	c := redact.Config{Protocol: r.sc.protocol}
	if r.policy != nil {
		c = r.policy.Config(policies.Scope{Protocol: r.sc.protocol, Header: header, InData: inData})
	}
	c.Digest, c.Echoes = r.digest, r.echoes
	if header == "" {
		c.Size, c.Memory = len(r.m.Body), r.bench.clean.Memory()
	}
	return c
}

// echoing reports whether anything that was taken out still stands somewhere.
func (r *redaction) echoing(c *content, headers map[string][]string) bool {
	if c.reason == "" && !r.own() {
		text, err := c.text, error(nil)
		if text == nil {
			text, err = appendCanonical(nil, c.tree)
		}
		if err != nil || r.echoes.In(string(text)) {
			return true
		}
	}
	for name, values := range headers {
		if ownSignature(r.sc.kind, name, values) {
			continue
		}
		if r.echoes.In(name) || r.echoes.In(strings.Join(values, "\n")) {
			return true
		}
	}
	return false
}

// inSubject reports whether the subject holds what may not be released.
func (r *redaction) inSubject() bool {
	return r.sc.secret || r.echoes.In(r.named.Session) || r.echoes.In(r.m.Subject)
}

// Purposes of the keyed digests that stand for values.
const (
	hashPurpose  = "countersign/hash/v1\x00"
	tokenPurpose = "countersign/token/v1\x00"
)

// digest stands for a value: under the session's key for a hash and a session's
// token, so that it goes with the session, under the tenant's for any other token.
func (r *redaction) digest(t redact.Treatment, detector, value string) string {
	if r.digests != nil {
		return r.digests(t, detector, value)
	}
	key, purpose := []byte(nil), hashPurpose
	switch {
	case t.Action == redact.Token && !t.InSession:
		key, purpose = r.keys.TenantKey(r.key.Tenant), tokenPurpose
	case t.Action == redact.Token:
		key, purpose = r.sessionKey(), tokenPurpose
	default:
		key = r.sessionKey()
	}
	if len(key) < digest.KeySize {
		r.keyErr = errors.Join(r.keyErr, fmt.Errorf("%w: for a redaction that asks for a keyed digest", ErrKeys))
		return strings.Repeat("0", 32) // the record is not built
	}
	return keyedText(key, purpose, detector, value)
}

func keyedText(key []byte, purpose, detector, value string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(purpose + redact.Normal(detector, value)))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// own reports whether the message is a record that Countersign itself wrote.
func (r *redaction) own() bool {
	if !r.ownKnown {
		r.ownKnown, r.isOwn = true, r.sc.class != subject.Events && ownRecord(r.sc, r.m.Body)
	}
	return r.isOwn
}

// sessionKey asks for the session's key, once.
func (r *redaction) sessionKey() []byte {
	if r.session == nil && r.keyErr == nil {
		key, err := r.keys.SessionKey(r.named.Tenant, r.named.Session)
		switch {
		case err != nil:
			r.keyErr = fmt.Errorf("the session key: %w", err)
		case len(key) != digest.KeySize:
			r.keyErr = fmt.Errorf("%w: the session key", ErrKeys)
		default:
			r.session = bytes.Clone(key)
		}
	}
	return r.session
}

// policyID is what a record says of the policy: nothing where there are none.
func (r *redaction) policyID() string {
	switch {
	case r.b.policies == nil:
		return ""
	case r.policy == nil:
		return policies.BuiltinID
	}
	return r.policy.ID()
}
