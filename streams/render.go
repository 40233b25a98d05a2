package streams

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
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
		outside := c.outside()
		c.renderServicesAccount(w, outside)
		for _, m := range outside {
			m.render(w, c.TenantMaxPayload)
		}
		c.renderSystem(w, outside)
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
	w.line("max_pending: %d", maxPending)
	w.block("jetstream", func() {
		w.line("store_dir: \"%s\"", c.StoreDir)
		w.line("sync_interval: %q", c.SyncInterval)
	})
	w.line("system_account: %q", SystemAccount)
}

// member is a user outside the services' account, with an account of its own.
type member struct {
	account string
	user    User
	role    role
	scope   scope
}

// outside lists every user that has an account of its own.
func (c ServerConfig) outside() (list []member) {
	for _, u := range c.Services {
		if r := roles[u.Role]; r.place == placeOperator {
			list = append(list, member{string(u.Role) + accountSeparator + u.Name, u, r, c.scope("", u)})
		}
	}
	for _, t := range c.Tenants {
		for _, u := range t.Users {
			list = append(list, member{AccountFor(t.Name, u.Name), u, roles[u.Role], c.scope(t.Name, u)})
		}
	}
	return list
}

// render writes the account of a member.
func (m member) render(w *confWriter, tenantMaxPayload int) {
	w.block(fmt.Sprintf("%q", m.account), func() {
		if m.role.place == placeTenant {
			w.line("limits: { max_payload: %d }", tenantMaxPayload)
		}
		w.list("imports", func() {
			for _, s := range m.role.services {
				to := ""
				if s.as != "" {
					to = fmt.Sprintf(", to: %q", m.scope.fillOne(s.as))
				}
				// share: the server stamps Nats-Request-Info with account and user.
				w.line("{ service: { account: %q, subject: %q }%s, share: true }", ServicesAccount, m.scope.fillOne(s.subject), to)
			}
			for _, s := range m.scope.fill(m.role.outputs) {
				w.line("{ stream: { account: %q, subject: %q } }", ServicesAccount, s)
			}
			if m.asksServers() {
				w.line("{ service: { account: %q, subject: %q } }", SystemAccount, durabilitySubject)
			}
		})
		w.list("users", func() { w.user(m.user, m.scope) })
	})
}

// asksServers reports whether the member may ask the servers for their settings.
func (m member) asksServers() bool { return slices.Contains(m.role.pub, durabilitySubject) }

func (c ServerConfig) renderServicesAccount(w *confWriter, outside []member) {
	w.block(fmt.Sprintf("%q", ServicesAccount), func() {
		w.line("jetstream: enabled")
		w.list("exports", func() { renderExports(w, outside) })
		w.list("imports", func() { w.line("{ service: { account: %q, subject: %q } }", SystemAccount, durabilitySubject) })
		w.list("users", func() {
			for _, u := range c.Services {
				if roles[u.Role].place == placeServices {
					w.user(u, c.scope("", u))
				}
			}
		})
	})
}

// renderExports writes one line for each subject, with the accounts that may
// import it: an export without accounts would be open to all.
func renderExports(w *confWriter, outside []member) {
	type export struct{ kind, subject string }
	var order []export
	accounts := map[export][]string{}
	add := func(e export, account string) {
		if accounts[e] == nil {
			order = append(order, e)
		}
		accounts[e] = append(accounts[e], account)
	}
	for _, m := range outside {
		for _, s := range m.role.services {
			kind := "service"
			if m.role.place == placeOperator {
				kind = "service, response_type: stream" // several may answer
			}
			add(export{kind, m.scope.fillOne(s.subject)}, m.account)
		}
		for _, s := range m.scope.fill(m.role.outputs) {
			add(export{"stream", s}, m.account)
		}
	}
	for _, e := range order {
		kind, extra, more := strings.Cut(e.kind, ",")
		if more {
			extra = "," + extra
		}
		w.line("{ %s: %q%s, accounts: %s }", kind, e.subject, extra, quoted(accounts[e]))
	}
}

func (c ServerConfig) renderSystem(w *confWriter, outside []member) {
	accounts := []string{ServicesAccount}
	for _, m := range outside {
		if m.asksServers() {
			accounts = append(accounts, m.account)
		}
	}
	w.block(fmt.Sprintf("%q", SystemAccount), func() {
		w.list("exports", func() {
			w.line("{ service: %q, response_type: stream, accounts: %s }", durabilitySubject, quoted(accounts))
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
