package streams

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// What a tenant imports. Services are imported with share: true, so that the
// server stamps Nats-Request-Info with account and user on every request.
var (
	tenantServices = []string{"{p}.admit.{t}.>", "{p}.resolve.{t}", "{p}.follow.{t}", "{p}.events.{t}.>"}
	tenantOutputs  = []string{"{p}.decisions.{t}.>", "{p}.calls.{t}.>", "{p}.findings.{t}.>", "{p}.approvals.{t}.>"}
)

// Render gives the nats-server configuration of c. It holds passwords unless
// they are hashes or environment references: write it readable by its owner
// only (0600).
func (c ServerConfig) Render() ([]byte, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	w := &confWriter{}
	c.renderServer(w)
	w.block("accounts", func() {
		c.renderServicesAccount(w)
		c.renderOperatorAccount(w)
		for _, t := range c.Tenants {
			c.renderTenant(w, t)
		}
		c.renderSystem(w)
	})
	return w.buf.Bytes(), nil
}

func (c ServerConfig) renderServer(w *confWriter) {
	w.line("server_name: %q", c.Name)
	w.line("host: %q", c.Host)
	w.line("port: %d", c.Port)
	if c.MonitorPort != 0 {
		w.line("http: \"%s:%d\"", c.Host, c.MonitorPort)
	}
	w.line("max_payload: %d", c.MaxPayload)
	w.block("jetstream", func() {
		w.line("store_dir: \"%s\"", c.StoreDir)
		w.line("sync_interval: %q", c.SyncInterval)
	})
	w.line("system_account: %q", SystemAccount)
}

func (c ServerConfig) renderServicesAccount(w *confWriter) {
	w.block(fmt.Sprintf("%q", ServicesAccount), func() {
		w.line("jetstream: enabled")
		w.list("exports", func() {
			for _, t := range c.Tenants {
				s := c.scope(t.Name, User{})
				w.ports("service", s.fill(tenantServices), "", AccountFor(t.Name))
				w.ports("stream", s.fill(tenantOutputs), "", AccountFor(t.Name))
			}
			w.ports("service", c.operatorSubjects(), ", response_type: stream", OperatorAccount)
		})
		w.list("imports", func() { w.imports("service", []string{durabilitySubject}, SystemAccount, false) })
		w.list("users", func() {
			for _, u := range c.Services {
				if roles[u.Role].place == placeServices {
					w.user(u, c.scope("", u))
				}
			}
		})
	})
}

func (c ServerConfig) renderOperatorAccount(w *confWriter) {
	w.block(fmt.Sprintf("%q", OperatorAccount), func() {
		w.list("imports", func() {
			w.imports("service", c.operatorSubjects(), ServicesAccount, true)
			w.imports("service", []string{durabilitySubject}, SystemAccount, false)
		})
		w.list("users", func() {
			for _, u := range c.Services {
				if roles[u.Role].place == placeOperator {
					w.user(u, c.scope("", u))
				}
			}
		})
	})
}

// operatorSubjects are the services' account's exports to the operators.
func (c ServerConfig) operatorSubjects() (out []string) {
	for _, s := range c.scope("", User{}).fill(operatorServices) {
		if s != durabilitySubject {
			out = append(out, s)
		}
	}
	return out
}

func (c ServerConfig) renderTenant(w *confWriter, t Tenant) {
	s := c.scope(t.Name, User{})
	w.block(fmt.Sprintf("%q", AccountFor(t.Name)), func() {
		w.list("imports", func() {
			w.imports("service", s.fill(tenantServices), ServicesAccount, true)
			w.imports("stream", s.fill(tenantOutputs), ServicesAccount, false)
		})
		w.list("users", func() {
			for _, u := range t.Users {
				w.user(u, c.scope(t.Name, u))
			}
		})
	})
}

func (c ServerConfig) renderSystem(w *confWriter) {
	w.block(fmt.Sprintf("%q", SystemAccount), func() {
		w.list("exports", func() {
			w.ports("service", []string{durabilitySubject}, ", response_type: stream", ServicesAccount, OperatorAccount)
		})
		w.list("users", func() {
			if c.System != nil {
				w.line("{ user: %q, password: %s }", c.System.Name, password(c.System.Password))
			}
		})
	})
}

func (c ServerConfig) scope(tenant string, u User) scope {
	s := scope{prefix: c.Space.Prefix, shard: c.Shard, user: u.Name, inbox: u.Inbox()}
	if tenant != "" {
		s.tenant = subject.Escape(tenant)
	}
	return s
}

// password writes an environment reference bare and anything else quoted.
func password(p string) string {
	if envForm.MatchString(p) {
		return p
	}
	return `"` + p + `"`
}

// confWriter writes NATS configuration syntax.
type confWriter struct {
	buf   bytes.Buffer
	depth int
}

func (w *confWriter) line(format string, args ...any) {
	w.buf.WriteString(strings.Repeat("  ", w.depth))
	fmt.Fprintf(&w.buf, format, args...)
	w.buf.WriteByte('\n')
}

func (w *confWriter) nest(open, end string, body func()) {
	w.line("%s", open)
	w.depth++
	body()
	w.depth--
	w.line("%s", end)
}

func (w *confWriter) block(name string, body func()) { w.nest(name+" {", "}", body) }
func (w *confWriter) list(name string, body func())  { w.nest(name+": [", "]", body) }

func (w *confWriter) ports(kind string, subjects []string, extra string, accounts ...string) {
	for _, s := range subjects {
		w.line("{ %s: %q%s, accounts: %s }", kind, s, extra, quoted(accounts))
	}
}

func (w *confWriter) imports(kind string, subjects []string, from string, share bool) {
	extra := ""
	if share {
		extra = ", share: true"
	}
	for _, s := range subjects {
		w.line("{ %s: { account: %q, subject: %q }%s }", kind, from, s, extra)
	}
}

func (w *confWriter) user(u User, s scope) {
	r := roles[u.Role]
	w.nest("{", "}", func() {
		w.line("user: %q, password: %s", u.Name, password(u.Password))
		w.block("permissions", func() {
			if len(r.pub) == 0 { // an empty allow list would allow everything
				w.line("publish: { deny: [\">\"] }")
			} else {
				w.line("publish: { allow: %s, deny: %s }", quoted(s.fill(r.pub)), quoted(s.fill(r.denyPub)))
			}
			w.line("subscribe: { allow: %s }", quoted(s.fill(r.sub)))
		})
	})
}

func quoted(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(q, ", ") + "]"
}
