package system

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/pipeline"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/sessionsecrets"
	"github.com/countersign-dev/countersign/streams"
)

// DigestFlags name the keys of digests. Operators may not read the keys of sessions, not even
// wrapped: a kept copy would undo an erasure.
type DigestFlags struct {
	Keys         string `help:"Key directory with master.key: compute digests again, too." placeholder:"DIR"`
	KeysUser     string `help:"NATS user that may read session keys, such as correlator (default: the one of 'up', if DIR is in its data directory)." placeholder:"USER"`
	KeysPassword string `help:"Its password (better in the environment)." env:"COUNTERSIGN_KEYS_PASSWORD"`
	KeysCreds    string `help:"Its NATS credentials file, instead of user and password." placeholder:"FILE"`
}

// SessionDigests returns the keys of a session's digests, as far as they are available.
func (f DigestFlags) SessionDigests(ctx context.Context, t *target.Target, tenant, session string) (k digest.Keys, err error) {
	if f.Keys == "" {
		return k, nil
	}
	master, err := keys.Master(f.Keys)
	if err != nil {
		return k, err
	}
	k.Tenant = master.Tenant(tenant)
	if f.KeysUser == "" && f.KeysCreds == "" {
		f.KeysUser = string(streams.RoleCorrelator)
		if f.KeysPassword, err = pipeline.ServicePassword(filepath.Dir(f.Keys), streams.RoleCorrelator); err != nil {
			return k, err
		}
		if f.KeysPassword == "" {
			return k, nil
		}
	}
	if session == "" {
		return k, nil
	}
	service := *t
	service.User, service.Password, service.Creds, service.Inbox = f.KeysUser, f.KeysPassword, f.KeysCreds, streams.User{Name: f.KeysUser}.Inbox()
	nc, err := service.Connect(ctx, target.Operator)
	if err != nil {
		return k, fmt.Errorf("connecting for the session's key: %w", err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return k, err
	}
	store, err := sessionsecrets.OpenReader(ctx, js, master)
	if err != nil {
		return k, err
	}
	key, _, err := store.Lookup(ctx, sessionsecrets.SessionOfSubject(tenant, subject.TokenValue(session)))
	if err != nil {
		return k, fmt.Errorf("reading the session's key: %w", err)
	}
	k.Session = key.Digests
	return k, nil
}
