package streams

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

const (
	dialTimeout   = 5 * time.Second
	reconnectWait = 250 * time.Millisecond
	pingInterval  = 20 * time.Second

	// With several servers, a client leaves a silent server within 2 s: when the third ping is
	// due, two are unanswered.
	clusterPingInterval = 500 * time.Millisecond
	clusterDialTimeout  = 2 * time.Second
	pingsOutstanding    = 2
)

// ConnectOptions say how to reach a server. Set User and Password, or CredsFile.
type ConnectOptions struct {
	URL       string // of one server, or of all servers of a cluster, separated by commas
	User      string
	Password  string
	CredsFile string
	// InboxPrefix is the subject prefix for replies; it must be the one that the user may
	// subscribe to. The default is "_INBOX_<User>".
	InboxPrefix string
	// Name is shown in the server's connection list.
	Name string
	Log  zerolog.Logger
}

// Connect connects to a server, and fails if none answers. Later it reconnects without limit.
// Publishing while disconnected fails at once; messages are not buffered. The caller closes
// the connection.
func Connect(ctx context.Context, o ConnectOptions) (*nats.Conn, error) {
	if o.URL == "" {
		return nil, errors.New("no NATS server given: pass --server nats://HOST:PORT or --ready-file FILE")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		nc  *nats.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		nc, err := nats.Connect(o.URL, o.natsOptions()...)
		done <- result{nc, err}
	}()
	select {
	case r := <-done:
		return r.nc, explainConnect(o, r.err)
	case <-ctx.Done():
		go func() {
			if r := <-done; r.nc != nil {
				r.nc.Close()
			}
		}()
		return nil, fmt.Errorf("connecting to %s: %w", redactURL(o.URL), ctx.Err())
	}
}

func (o ConnectOptions) natsOptions() []nats.Option {
	inbox := o.InboxPrefix
	if inbox == "" && o.User != "" {
		inbox = User{Name: o.User}.Inbox()
	}
	log := o.Log
	ping, dial := pingInterval, dialTimeout
	if strings.Contains(o.URL, ",") {
		ping, dial = clusterPingInterval, clusterDialTimeout
	}
	opts := []nats.Option{
		nats.Name(o.Name), nats.Timeout(dial), nats.PingInterval(ping), nats.MaxPingsOutstanding(pingsOutstanding),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(), nats.PermissionErrOnSubscribe(true),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn().Err(err).Msg("NATS connection lost, reconnecting")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Info().Str("server", nc.ConnectedServerName()).Msg("NATS reconnected") }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Error().Err(err).Msg("NATS") }),
	}
	if inbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(inbox))
	}
	switch {
	case o.CredsFile != "":
		opts = append(opts, nats.UserCredentials(o.CredsFile))
	case o.User != "":
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	return opts
}

func explainConnect(o ConnectOptions, err error) error {
	at := redactURL(o.URL)
	var malformed *url.Error // quotes the URL with its password
	switch {
	case err == nil:
		return nil
	case errors.As(err, &malformed):
		return errors.New("a NATS server's URL is malformed: percent-encode the special characters of its user and password, such as %23 for #")
	case errors.Is(err, nats.ErrNoServers):
		return fmt.Errorf("no NATS server answers at %s: start it (countersign up starts one), or pass the right --server: %w", at, err)
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("the NATS server at %s refused user %q: check --user and --password or --creds: %w", at, o.User, err)
	case errors.Is(err, nats.ErrMaxAccountConnectionsExceeded):
		return fmt.Errorf("user %q has as many connections to NATS at %s as it may have: close some, use the gateway, or use another user: %w", o.User, at, err)
	default:
		return fmt.Errorf("connecting to NATS at %s as %q: %w", at, o.User, err)
	}
}

// redactURL reduces a comma-separated list of server URLs to schemes and hosts, for messages.
func redactURL(list string) string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		if p = strings.TrimSpace(p); !strings.Contains(p, "://") { // as nats.go reads it
			p = "nats://" + p
		}
		u, err := url.Parse(p)
		if err != nil || strings.Contains(u.Path+u.RawQuery+u.Fragment, "@") { // the password has / ? or #: what parses as the host is a part of it
			parts[i] = "(malformed URL)"
			continue
		}
		parts[i] = u.Scheme + "://" + u.Host
	}
	return strings.Join(parts, ",")
}
