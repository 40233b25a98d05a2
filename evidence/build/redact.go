package build

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/canonical"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	policies "github.com/countersign-dev/countersign/evidence/redaction"
	"github.com/countersign-dev/countersign/evidence/retention"
)

// Policies returns the redaction policy of a tenant. An error means that the tenant has a
// policy that cannot be used; the builder withholds the bodies of its events.
type Policies func(tenant string) (*policies.Policy, error)

// WithPolicies returns a builder that redacts by the tenants' policies and records which
// policy applied. f must be safe for concurrent use and must not return a nil policy
// without an error.
func (b *Builder) WithPolicies(f Policies) *Builder {
	with := *b
	with.policies = f
	return &with
}

// Codes of findings about a record's redaction (Built.RedactionFindings).
const (
	FindingTooMany         = ReasonTooMany         // the body is withheld
	FindingRedactionFailed = ReasonRedactionFailed // the body is withheld
	FindingHeadersWithheld = "headers_withheld"    // all headers are withheld
	FindingSecretInSubject = "secret_in_subject"   // the subject on the log holds a secret
)

type documentFunc func(root any, prefix string, declared []string, c redact.Config) (any, []redact.Hit, error)

// recordRedactor is the redaction of one record.
type recordRedactor struct {
	builder    *Builder
	workspace  *workspace
	scope      recordScope
	message    events.LogMessage
	sessionID  events.SessionID
	keys       Keys
	logSession events.SessionID // as the log names it; differs from sessionID if that is masked

	policy         *policies.Policy // nil: there are no policies
	policyUnusable bool             // the tenant has a policy that cannot be used
	echoes         *redact.Echoes

	root                          strictjson.Value // of the body, in the workspace's document
	serviceChecked, serviceRecord bool             // see isServiceRecord

	class      retention.Class
	classBy    string       // the id of the retention policy that sets the class
	withheldBy string       // the detector that stands for the class; "" if it withholds nothing
	eventHits  []redact.Hit // what redaction finds in the whole event, before the class withholds it
	scanFailed bool         // the whole event could not be scanned

	sessionSecret []byte // cached by loadSessionSecret
	secretErr     error
}

// choosePolicy looks up the policy for the record. Only events hold a tenant's own content;
// messages on other subjects are redacted by the built-in rules.
func (r *recordRedactor) choosePolicy() {
	if r.builder.policies == nil || r.scope.SubjectClass != subject.Events {
		return
	}
	p, err := r.builder.policies(r.sessionID.Tenant)
	if r.policyUnusable = err != nil || p == nil; !r.policyUnusable {
		r.policy = p
	}
}

// collectFindings lists the codes of findings about the record's redaction.
func (r *recordRedactor) collectFindings(c recordBody, hits []redact.Hit) (list []string) {
	if c.reason == ReasonTooMany || c.reason == ReasonRedactionFailed {
		list = append(list, c.reason)
	}
	for _, h := range hits {
		if h.Path == "/headers" {
			list = append(list, FindingHeadersWithheld)
		}
	}
	if r.scope.SubjectClass == subject.Events && r.isSecretInSubject() {
		list = append(list, FindingSecretInSubject)
	}
	return list
}

// redactAll redacts body and headers. A value that was found in one place and must not be
// released must not remain in another. If it does, everything is redacted again with the
// list of found values; if it still does, or if these are too many, body and headers are withheld.
func (r *recordRedactor) redactAll(c *recordBody) (headers map[string][]string, hits []redact.Hit) {
	again := recordBody{reason: c.reason, hits: c.hits, kind: c.kind}
	headers, hits = r.redactOnce(c)
	r.echoes = redact.NewEchoes(slices.Concat(hits, c.hits, r.eventHits))
	if r.echoes.AreTooMany() {
		return r.withholdAll(c)
	}
	if r.echoes == nil || !r.hasEcho(c, headers) && !(r.isServiceRecord() && len(c.hits) > 0) {
		return headers, hits
	}
	if again.reason == "" {
		again = r.readBody()
	}
	*c = again
	if headers, hits = r.redactOnce(c); r.hasEcho(c, headers) {
		if c.reason == "" {
			c.withhold(ReasonRedactionFailed, r.message.Body)
		}
		headers, hits = withheldHeaders(r.message.Header, redact.Withheld)
	}
	return headers, hits
}

// withholdAll withholds body and headers of a record with too many values to search for.
func (r *recordRedactor) withholdAll(c *recordBody) (headers map[string][]string, hits []redact.Hit) {
	switch {
	case c.reason != "":
	case r.withheldBy != "":
		r.withholdByClass(c)
	default:
		c.withhold(ReasonTooMany, r.message.Body)
	}
	return withheldHeaders(r.message.Header, redact.TooMany)
}

// redactOnce redacts headers and body once. If redaction fails or panics, the part that
// failed is withheld.
func (r *recordRedactor) redactOnce(c *recordBody) (headers map[string][]string, hits []redact.Hit) {
	r.redactBody(c)
	defer func() {
		if recover() != nil {
			headers, hits = withheldHeaders(r.message.Header, redact.Withheld)
		}
	}()
	if r.policyUnusable {
		return withheldHeaders(r.message.Header, redact.Withheld)
	}
	config := func(name string) redact.Config { return r.redactConfig(name, false) }
	if r.withheldBy != "" {
		return r.withholdHeaders(config)
	}
	return r.redactHeaders(r.message.Header, config)
}

// redactBody redacts a parsed body.
func (r *recordRedactor) redactBody(c *recordBody) {
	if c.reason != "" || c.text != nil {
		return
	}
	defer func() {
		if recover() != nil {
			c.withhold(ReasonRedactionFailed, r.message.Body)
		}
	}()
	var err error
	switch {
	case r.isServiceRecord() && isRedactedKind(r.scope.Kind):
		s := names.ServiceRecord{Kind: r.scope.Kind, Digest: r.keyedDigest, Echoes: r.echoes}
		c.tree, c.hits = s.Redact(c.tree)
	case r.isServiceRecord():
		// Control records are kept as they are: services read them back.
	case r.policyUnusable:
		c.withhold(ReasonRedactionFailed, r.message.Body)
	case r.withheldBy != "":
		r.applyRetentionClass(c)
	default:
		err = r.redactContent(c)
	}
	if errors.Is(err, redact.ErrTooMuch) {
		c.withhold(ReasonTooMany, r.message.Body)
	} else if err != nil {
		c.withhold(ReasonRedactionFailed, r.message.Body)
	}
}

// redactContent redacts an event, or the content of another subject that is no service record.
func (r *recordRedactor) redactContent(c *recordBody) (err error) {
	if c.unclean.Len() > 0 {
		return r.redactUnclean(c)
	}
	if r.scope.SubjectClass == subject.Events && isStructuredCloudEvent(r.message.Header) {
		return r.redactCloudEvent(c)
	}
	c.tree, c.hits, err = r.redactDocument(c.tree, "/body", redact.DeclaredFields(c.tree), r.redactConfig("", false))
	return err
}

// redactUnclean redacts the unclean members of an event and writes its canonical form.
func (r *recordRedactor) redactUnclean(c *recordBody) error {
	list, hits, err := c.unclean.Redact("/body", r.redactConfig("", false))
	if err != nil {
		return err
	}
	text, err := canonical.AppendReplaced(r.workspace.text[:0], r.root, list)
	if err == nil {
		r.workspace.text, c.text, c.hits = text, text, hits
	}
	return err
}

func (r *recordRedactor) redactDocument(root any, prefix string, declared []string, c redact.Config) (any, []redact.Hit, error) {
	if r.builder.document == nil {
		return redact.Document(root, prefix, declared, c)
	}
	return r.builder.document(root, prefix, declared, c)
}

// redactConfig is the redaction of the body (header is "") or of one header.
func (r *recordRedactor) redactConfig(header string, inData bool) redact.Config {
	c := redact.Config{Protocol: r.scope.Protocol}
	if r.policy != nil {
		c = r.policy.Config(policies.Scope{Protocol: r.scope.Protocol, Header: header, InData: inData})
	}
	c.Digest, c.Echoes = r.keyedDigest, r.echoes
	if header == "" {
		c.Size = len(r.message.Body)
	}
	return c
}

// hasEcho reports whether a redacted value still appears in body or headers.
func (r *recordRedactor) hasEcho(c *recordBody, headers map[string][]string) bool {
	if c.reason == "" && !r.isServiceRecord() {
		text, err := c.text, error(nil)
		if text == nil {
			text, err = canonical.Append(nil, c.tree)
		}
		if err != nil || r.echoes.FoundIn(string(text)) {
			return true
		}
	}
	for name, values := range headers {
		if isSignatureHeader(r.scope.Kind, name, values) {
			continue
		}
		if r.echoes.FoundIn(name) || r.echoes.FoundIn(strings.Join(values, "\n")) {
			return true
		}
	}
	return false
}

// isSecretInSubject reports whether the subject holds a value that must not be released.
func (r *recordRedactor) isSecretInSubject() bool {
	return r.scope.hasSecret || r.echoes.FoundIn(r.logSession.Session) || r.echoes.FoundIn(r.message.Subject)
}

// keyedDigest returns the digest that replaces a value. A hash and a session's token use the
// session's secret, so that they mean nothing once it is destroyed; any other token uses the
// tenant's key.
func (r *recordRedactor) keyedDigest(t redact.Treatment, detector, value string) string {
	key, purpose := []byte(nil), names.HashPurpose
	switch {
	case t.Action == redact.Token && !t.InSession:
		key, purpose = r.keys.TenantKey(r.sessionID.Tenant), names.TokenPurpose
	case t.Action == redact.Token:
		key, purpose = r.loadSessionSecret(), names.TokenPurpose
	default:
		key = r.loadSessionSecret()
	}
	if len(key) < digest.KeySize {
		r.secretErr = errors.Join(r.secretErr, fmt.Errorf("%w: for a redaction that asks for a keyed digest", evidence.ErrKeys))
		return strings.Repeat("0", 32) // secretErr stops the record from being built
	}
	return names.KeyedText(key, purpose, detector, value)
}

// isServiceRecord reports whether the message is a record that Countersign itself wrote.
func (r *recordRedactor) isServiceRecord() bool {
	if !r.serviceChecked {
		r.serviceChecked, r.serviceRecord = true, r.scope.SubjectClass != subject.Events && isServiceRecordBody(r.scope, r.root, r.message.Body)
	}
	return r.serviceRecord
}

// loadSessionSecret fetches the session's secret once.
func (r *recordRedactor) loadSessionSecret() []byte {
	if r.sessionSecret == nil && r.secretErr == nil {
		key, err := r.keys.SessionSecret(r.logSession.Tenant, r.logSession.Session)
		switch {
		case err != nil:
			r.secretErr = fmt.Errorf("the session key: %w", err)
		case len(key) != digest.KeySize:
			r.secretErr = fmt.Errorf("%w: the session key", evidence.ErrKeys)
		default:
			r.sessionSecret = bytes.Clone(key)
		}
	}
	return r.sessionSecret
}

// policyID is the policy id that the record states, "" where there are no policies.
func (r *recordRedactor) policyID() string {
	switch {
	case r.builder.policies == nil:
		return ""
	case r.policy == nil:
		return policies.BuiltinID
	}
	return r.policy.ID()
}
