package streams

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/events/subject"
)

// Accounts of every server. Every user outside the services' account also has an account of its
// own.
const (
	// ServicesAccount holds the log, the KV buckets and the services.
	ServicesAccount = "COUNTERSIGN"
	// SystemAccount is the NATS system account.
	SystemAccount = "SYS"

	// maxPending is the greatest number of bytes that may wait in the server for one connection.
	// The server drops a connection with more, and slows senders down from three quarters of it
	// on. The last quarter has room for 50 messages of DefaultTenantMaxPayload in transit.
	maxPending = 256 << 20

	// A client that is silent is let go within 8 s: until then a service that is gone is asked, and does
	// not answer (TestSilentClientIsLetGo). The server pings only a client that sent nothing for a whole
	// interval, so the first ping can come 4 s after the last message.
	serverPingInterval    = "2s"
	serverPingsUnanswered = 2

	// maxFileStore is more than a disk has, so that the disk is the limit. Without one the server
	// sets it when it starts, to three quarters of what is free and of what it stores, and refuses
	// everything beyond, however much room is made (TestTheDiskIsTheLimit).
	maxFileStore = "1024T"

	tenantAccountPrefix = "tenant-"
	// A gateway's account is no tenant account: a service that does not know gateways refuses it.
	gatewayAccountPrefix = "gateway-"
	// accountSeparator separates the parts of an account's name. Neither an escaped tenant nor
	// a user's name can contain it.
	accountSeparator = ":"
)

// Defaults of ServerConfig and Shard.
const (
	DefaultShard        = "GOV"
	DefaultName         = "countersign"
	DefaultHost         = "127.0.0.1"
	DefaultSyncInterval = "always"
	DefaultMaxPayload   = 8 << 20 // bytes
	// DefaultTenantMaxPayload is enough for the largest legal request or event (1 MiB) with its
	// headers, and for slightly larger ones, which get an answer with a reason.
	DefaultTenantMaxPayload = 5 << 18 // bytes
)

// accountFor names the NATS account of a tenant's user. A requester chooses the reply subject
// inside its own account, so an account holds only one user: no other user can be made to
// receive an answer. Different pairs have different names (the name of a tenant of more than
// 64 bytes is replaced by its SHA-256).
func accountFor(tenant string, u User) string {
	prefix := tenantAccountPrefix
	if u.Role == RoleGateway {
		prefix = gatewayAccountPrefix
	}
	return prefix + subject.Escape(tenant) + accountSeparator + u.Name
}

// User is one NATS user. User names are global in a server.
type User struct {
	// Name is [A-Za-z0-9_-]+. For a runtime it is also its publisher token.
	Name string
	// Password is the password itself, a bcrypt hash ("$2a$…"), or "$NAME" for the environment
	// variable NAME of the server process. A password of only digits must not come from a
	// variable, because the server reads it as a number. It must not contain quotes,
	// backslashes or control characters.
	Password string
	Role     Role
	// InboxPrefix is the subject prefix for the user's replies, without a trailing dot. The
	// default is "_INBOX_<Name>". It must not overlap with another user's prefix.
	InboxPrefix string
}

// Inbox is the user's inbox prefix with the default applied.
func (u User) Inbox() string {
	if u.InboxPrefix != "" {
		return u.InboxPrefix
	}
	return "_INBOX_" + u.Name
}

// Tenant is a tenant with its users (runtime, subscriber, reviewer, gateway).
type Tenant struct {
	Name  string
	Users []User
}

// ServerConfig describes one NATS server for Countersign. A zero field means its default.
type ServerConfig struct {
	Name string
	Host string
	// Port 0 (or -1) picks a free port.
	Port int
	// StoreDir holds the streams; required.
	StoreDir string
	// SyncInterval is "always" (fsync before every acknowledgement) or a Go duration, e.g.
	// "2m".
	SyncInterval string
	// MaxPayload is the largest message of the services and the operators, in bytes with its
	// headers.
	MaxPayload int
	// TenantMaxPayload is the largest message of tenants' users, at most MaxPayload. The
	// server closes the connection of a user that sends more. It also drops a service's
	// connection with too many waiting bytes, and all tenants' requests in it, so the largest
	// message of one user must be a small part of maxPending (TestFloodOfLargeRequests).
	TenantMaxPayload int
	Space            subject.Space
	// Shard names the log stream.
	Shard string
	// Services are the users of Countersign's own processes and the operators.
	Services []User
	// System is the user of the system account, or nil for none.
	System *User
	// Tenants lists the tenants; each of their users gets an account.
	Tenants []Tenant
}

func (c ServerConfig) withDefaults() ServerConfig {
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&c.Name, DefaultName)
	def(&c.Host, DefaultHost)
	def(&c.SyncInterval, DefaultSyncInterval)
	def(&c.Shard, DefaultShard)
	def(&c.Space.Prefix, subject.DefaultPrefix)
	if c.Port == 0 {
		c.Port = -1
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = DefaultMaxPayload
	}
	if c.TenantMaxPayload == 0 {
		c.TenantMaxPayload = min(DefaultTenantMaxPayload, c.MaxPayload)
	}
	return c
}

var (
	plainToken   = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	prefixForm   = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	passwordForm = regexp.MustCompile(`^[\x20-\x7e]+$`)
	envForm      = regexp.MustCompile(`^\$[A-Za-z_][A-Za-z0-9_]*$`)
	hostForm     = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)
)

// validate checks a config with defaults applied and reports all faults.
func (c ServerConfig) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrConfig}, args...)...))
	}
	check := func(ok bool, format string, args ...any) {
		if !ok {
			bad(format, args...)
		}
	}
	check(plainToken.MatchString(c.Name), "Name %q must be [A-Za-z0-9_-]+", c.Name)
	check(hostForm.MatchString(c.Host), "Host %q is not a host name or address", c.Host)
	check(c.Port >= -1 && c.Port < 1<<16, "Port %d is out of range", c.Port)
	check(c.StoreDir != "" && !strings.ContainsAny(c.StoreDir, "\"\\\n\r"), "StoreDir %q must be a directory without quotes or backslashes", c.StoreDir)
	check(validSync(c.SyncInterval), "SyncInterval %q must be \"always\" or a duration such as 2m", c.SyncInterval)
	check(c.MaxPayload >= 1024 && c.MaxPayload <= 64<<20, "MaxPayload %d must be between 1 KiB and 64 MiB", c.MaxPayload)
	check(c.TenantMaxPayload >= 1024 && c.TenantMaxPayload <= c.MaxPayload, "TenantMaxPayload %d must be between 1 KiB and MaxPayload (%d)", c.TenantMaxPayload, c.MaxPayload)
	check(prefixForm.MatchString(c.Space.Prefix), "Space.Prefix %q is not a subject prefix", c.Space.Prefix)
	check(plainToken.MatchString(c.Shard), "Shard %q must be [A-Za-z0-9_-]+", c.Shard)
	tenants := map[string]bool{}
	for _, t := range c.Tenants {
		check(t.Name != "", "a tenant has no name")
		check(!tenants[t.Name], "tenant %q is there twice", t.Name)
		tenants[t.Name] = true
	}
	errs = append(errs, c.validateUsers()...)
	return errors.Join(errs...)
}

func validSync(s string) bool {
	d, err := time.ParseDuration(s)
	return s == "always" || err == nil && d > 0
}

func (c ServerConfig) validateUsers() (errs []error) {
	names, inboxes := map[string]bool{}, map[string]string{}
	one := func(u User, home accountPlace) {
		switch r, known := roles[u.Role]; {
		case !plainToken.MatchString(u.Name):
			errs = append(errs, fmt.Errorf("%w: user name %q must be [A-Za-z0-9_-]+, at most 64 characters", ErrConfig, u.Name))
		case names[u.Name]:
			errs = append(errs, fmt.Errorf("%w: user name %q is there twice; names are global in a NATS server", ErrConfig, u.Name))
		case !passwordForm.MatchString(u.Password) || strings.ContainsAny(u.Password, `"'\`):
			errs = append(errs, fmt.Errorf("%w: the password of %q is empty or has quotes, backslashes or control characters", ErrConfig, u.Name))
		case !prefixForm.MatchString(u.Inbox()):
			errs = append(errs, fmt.Errorf("%w: inbox prefix %q of %q is not a subject prefix", ErrConfig, u.Inbox(), u.Name))
		case home != placeSystem && (!known || r.place&home == 0):
			errs = append(errs, fmt.Errorf("%w: role %q of %q does not belong there", ErrConfig, u.Role, u.Name))
		case strings.HasPrefix(u.Inbox()+".", c.Space.Prefix+"."):
			errs = append(errs, fmt.Errorf("%w: inbox prefix %q of %q lies on Countersign's own subjects", ErrConfig, u.Inbox(), u.Name))
		}
		names[u.Name] = true
		for other, owner := range inboxes {
			if strings.HasPrefix(u.Inbox()+".", other+".") || strings.HasPrefix(other+".", u.Inbox()+".") {
				errs = append(errs, fmt.Errorf("%w: inbox prefixes of %q and %q overlap", ErrConfig, u.Name, owner))
			}
		}
		inboxes[u.Inbox()] = u.Name
	}
	for _, u := range c.Services {
		one(u, placeServices|placeOperator)
	}
	for _, t := range c.Tenants {
		for _, u := range t.Users {
			one(u, placeTenant|placeGateway)
		}
	}
	if c.System != nil {
		one(*c.System, placeSystem)
	}
	return errs
}
