package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
)

// probeWait is how long to wait for an answer that should not come.
const probeWait = 500 * time.Millisecond

// permissions checks what a runtime can do beyond its role. A user that can subscribe to the
// admission subjects can answer in the admitter's place; a user with JetStream access can bypass
// it.
func (d doctor) permissions(ctx context.Context) []examined {
	const check = "permissions"
	r := d.Target.ReadyInfo()
	if r == nil || d.Target.User != "" || d.Target.Creds != "" || d.Target.Context != "" {
		return one(check, levelWarn, "not looked at: no runtime's credentials are known (give --ready-file)")
	}
	nc, err := d.Target.ConnectNamed(ctx, target.Runtime, "countersign doctor")
	if err != nil {
		return one(check, levelUnsafe, "the runtime cannot connect: %v", err)
	}
	defer nc.Close()
	var wrong []string
	for _, probe := range []func(*nats.Conn) (string, error){d.probeJetStream, d.probeAdmit} {
		found, err := probe(nc)
		if err != nil {
			return one(check, levelUnsafe, "cannot be tried out: %v", err)
		}
		if found != "" {
			wrong = append(wrong, found)
		}
	}
	if len(wrong) > 0 {
		return one(check, levelUnsafe, "runtime %s %s: use the accounts and permissions of deploy/nats", r.Roles[target.Runtime].User, strings.Join(wrong, " and "))
	}
	return one(check, levelOK, "runtime %s has no JetStream and cannot listen for admission requests", r.Roles[target.Runtime].User)
}

// confirmTimeout is how long a server may take to report a refusal.
const confirmTimeout = 5 * time.Second

// probeJetStream requests JetStream as the runtime, which must not succeed.
func (d doctor) probeJetStream(nc *nats.Conn) (string, error) {
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return "", err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest("$JS.API.INFO", sub.Subject, nil); err != nil {
		return "", err
	}
	if err := nc.FlushTimeout(confirmTimeout); err != nil {
		return "", err
	}
	if errors.Is(nc.LastError(), nats.ErrPermissionViolation) {
		return "", nil
	}
	reply, err := sub.NextMsg(probeWait)
	if err != nil {
		return "", nil // no responder
	}
	var answer struct {
		Error json.RawMessage `json:"error"`
	}
	if json.Unmarshal(reply.Data, &answer) != nil || answer.Error != nil {
		return "", nil // not for this account
	}
	return "has JetStream", nil
}

// probeAdmit subscribes to the admitter's subjects; it handles no message.
func (d doctor) probeAdmit(nc *nats.Conn) (string, error) {
	sub, err := nc.SubscribeSync(subject.Space{Prefix: d.Target.Prefix}.All(subject.Admit))
	if err != nil {
		return "", fmt.Errorf("subscribing: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.FlushTimeout(confirmTimeout); err != nil {
		return "", err
	}
	if _, err := sub.NextMsg(time.Millisecond); errors.Is(err, nats.ErrPermissionViolation) {
		return "", nil
	}
	return "can listen for admission requests", nil
}
