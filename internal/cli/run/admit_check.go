package run

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/protocol"
)

// replyChecker decides whether the verdict in a reply can be trusted. A deny always can; an allow
// must have a valid receipt that binds the request that was sent.
type replyChecker struct {
	protocol, tenant string
	source           string // "" if unknown
	body             []byte
	header           map[string][]string
	guard            *guard.Guard // nil without a key
	unchecked        bool
}

var errNoKey = errors.New("an allow cannot be checked without the public checkpoint key: give --key FILE (checkpoint.pub of the installation) " +
	"or --ready-file FILE (--insecure-no-receipt believes it unchecked)")

// reply returns nil if the verdict in the header can be trusted.
func (c *replyChecker) reply(verdict events.Verdict, m *nats.Msg, now time.Time) error {
	if err := c.native(verdict, m.Data); err != nil {
		return err
	}
	token := m.Header.Get(events.HeaderReceipt)
	if verdict != events.Allow {
		if c.guard == nil || token == "" {
			return nil
		}
		if claims, err := c.guard.Open(token, m.Header.Get(events.HeaderKey)); err == nil && claims.Verdict != verdict {
			return fmt.Errorf("the header says %s and the receipt %s", verdict, claims.Verdict)
		}
		return nil
	}
	local := c.reading(make([]byte, receipt.SaltSize), now)
	switch {
	case c.unchecked:
		return nil
	case token == "" && local.NoReceipt && !local.Malformed:
		return nil // the request reports something and proposes nothing: there is nothing to allow
	case c.guard == nil:
		return errNoKey
	case token == "":
		return errors.New("the reply says allow and has no receipt")
	}
	claims, err := c.guard.Open(token, m.Header.Get(events.HeaderKey))
	if err != nil {
		return err
	}
	return c.binds(claims, m.Header.Get(events.HeaderDecisionID), now)
}

// native compares the header with the verdict in the reply's body, if the protocol has one.
func (c *replyChecker) native(verdict events.Verdict, body []byte) error {
	row := protocol.Rows[c.protocol]
	var members map[string]json.RawMessage
	if row.ReplyMember == "" || json.Unmarshal(body, &members) != nil {
		return nil
	}
	raw, there := members[row.ReplyMember]
	var word string
	if there && (json.Unmarshal(raw, &word) != nil || word != row.ReplyWords[verdict]) {
		return fmt.Errorf("the header says %s and the reply something else", verdict)
	}
	return nil
}

// reading decodes the request with the admitter's own core, so the receipt must bind the same
// call. The verdict in the result means nothing, because no policy is evaluated.
func (c *replyChecker) reading(salt []byte, now time.Time) admission.Outcome {
	source := c.source
	if source == "" {
		source = admission.OfflineSource
	}
	return admission.Decide(
		admission.Request{Tenant: c.tenant, Source: source, Protocol: c.protocol, Header: c.header, Body: c.body, ReceivedAt: now}, nil,
		admission.Inputs{Now: now, DecisionID: "reading", Nonce: "reading", Salt: salt, PlainDigests: true, KnownTenant: true})
}

// binds compares a receipt with the request and with the reply that carried it.
func (c *replyChecker) binds(claims receipt.Claims, decisionID string, now time.Time) error {
	salt := make([]byte, receipt.SaltSize)
	if claims.ArgsSalt != "" {
		var err error
		if salt, err = base64.RawURLEncoding.DecodeString(claims.ArgsSalt); err != nil {
			return receipt.ErrMalformed
		}
	}
	want := c.reading(salt, now).Claims
	for _, f := range []struct {
		differs bool
		err     error
	}{
		{claims.Tenant != c.tenant, receipt.ErrOtherTenant},
		{c.source != "" && claims.Source != c.source, receipt.ErrOtherSource},
		{claims.Session != want.Session, receipt.ErrOtherSession},
		{claims.ToolCallID != want.ToolCallID, receipt.ErrOtherToolCall},
		{claims.Tool != want.Tool, receipt.ErrOtherTool},
		{!digest.Equal(claims.ArgsHash, want.ArgsHash), receipt.ErrOtherArguments},
		{claims.DecisionID != decisionID || want.DecisionID == "", receipt.ErrOtherCall},
		{claims.Verdict != events.Allow, receipt.ErrNotAllowed},
	} {
		if f.differs {
			return f.err
		}
	}
	return claims.HoldsAt(now)
}
