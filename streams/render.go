package streams

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events/subject"
)

// Render writes the nats-server configuration of c. It contains passwords unless they are hashes or
// environment references, so the caller must write it with mode 0600.
func (c ServerConfig) Render() ([]byte, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	w := &confWriter{}
	c.renderServer(w)
	w.writeBlock("accounts", func() {
		outside := c.accountMembers()
		c.renderServicesAccount(w, outside)
		for _, m := range outside {
			m.renderAccount(w, c.TenantMaxPayload)
		}
		c.renderSystem(w, outside)
	})
	return w.buf.Bytes(), nil
}

func (c ServerConfig) renderServer(w *confWriter) {
	w.writeLine("server_name: %q", c.Name)
	w.writeLine("host: %q", c.Host)
	w.writeLine("port: %d", c.Port)
	w.writeLine("max_payload: %d", c.MaxPayload)
	w.writeLine("max_pending: %d", maxPending)
	w.writeLine("ping_interval: %q", serverPingInterval)
	w.writeLine("ping_max: %d", serverPingsUnanswered)
	w.writeBlock("jetstream", func() {
		w.writeLine("store_dir: \"%s\"", c.StoreDir)
		w.writeLine("sync_interval: %q", c.SyncInterval)
		w.writeLine("max_file_store: %q", maxFileStore)
	})
	w.writeLine("system_account: %q", SystemAccount)
}

// member is a user outside the services' account. It has an account of its own.
type member struct {
	account string
	user    User
	role    role
	values  placeholders
}

// accountMembers lists every user that has an account of its own.
func (c ServerConfig) accountMembers() (list []member) {
	for _, u := range c.Services {
		if r := roles[u.Role]; r.place == placeOperator {
			list = append(list, member{string(u.Role) + accountSeparator + u.Name, u, r, c.valuesFor("", u)})
		}
	}
	for _, t := range c.Tenants {
		for _, u := range t.Users {
			list = append(list, member{accountFor(t.Name, u), u, roles[u.Role], c.valuesFor(t.Name, u)})
		}
	}
	return list
}

// renderAccount writes the account of a member.
func (m member) renderAccount(w *confWriter, tenantMaxPayload int) {
	w.writeBlock(fmt.Sprintf("%q", m.account), func() {
		if m.role.place&(placeTenant|placeGateway) != 0 {
			most := m.role.limits
			w.writeLine("limits: { max_payload: %d, max_connections: %d, max_subscriptions: %d }", tenantMaxPayload, most.connections, most.subscriptions)
		}
		w.writeList("imports", func() {
			for _, s := range m.role.services {
				to := ""
				if s.importedAs != "" {
					to = fmt.Sprintf(", to: %q", m.values.fillOne(s.importedAs))
				}
				// share: the server stamps Nats-Request-Info with account and user.
				w.writeLine("{ service: { account: %q, subject: %q }%s, share: true }", ServicesAccount, m.values.fillOne(s.subject), to)
			}
			for _, s := range m.values.fillAll(m.role.outputs) {
				w.writeLine("{ stream: { account: %q, subject: %q } }", ServicesAccount, s)
			}
			if m.asksServers() {
				w.writeLine("{ service: { account: %q, subject: %q } }", SystemAccount, durabilitySubject)
			}
		})
		w.writeList("users", func() { w.writeUser(m.user, m.values) })
	})
}

// asksServers reports whether the member may ask the servers for their settings.
func (m member) asksServers() bool { return slices.Contains(m.role.pub, durabilitySubject) }

func (c ServerConfig) renderServicesAccount(w *confWriter, outside []member) {
	w.writeBlock(fmt.Sprintf("%q", ServicesAccount), func() {
		w.writeLine("jetstream: enabled")
		w.writeList("exports", func() { renderExports(w, outside) })
		w.writeList("imports", func() { w.writeLine("{ service: { account: %q, subject: %q } }", SystemAccount, durabilitySubject) })
		w.writeList("users", func() {
			for _, u := range c.Services {
				if roles[u.Role].place == placeServices {
					w.writeUser(u, c.valuesFor("", u))
				}
			}
		})
	})
}

// renderExports writes one line for each subject, with the accounts that may import it. An export
// without accounts would be open to all accounts. A gateway has lines of its own for subjects that
// name no tenant, so that another tenant adds lines and changes none: the server joins the accounts of
// all lines of a subject.
func renderExports(w *confWriter, outside []member) {
	type export struct{ kind, subject, only string }
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
			if m.role.place == placeOperator || strings.HasPrefix(s.subject, "$") {
				kind = "service, response_type: stream" // several may answer; a subject has one kind of export
			}
			only := ""
			if m.role.place == placeGateway && strings.HasPrefix(s.subject, "$") {
				only = m.account
			}
			add(export{kind, m.values.fillOne(s.subject), only}, m.account)
		}
		for _, s := range m.values.fillAll(m.role.outputs) {
			add(export{kind: "stream", subject: s}, m.account)
		}
	}
	for _, e := range order {
		kind, extra, more := strings.Cut(e.kind, ",")
		if more {
			extra = "," + extra
		}
		w.writeLine("{ %s: %q%s, accounts: %s }", kind, e.subject, extra, quoteList(accounts[e]))
	}
}

func (c ServerConfig) renderSystem(w *confWriter, outside []member) {
	accounts := []string{ServicesAccount}
	for _, m := range outside {
		if m.asksServers() {
			accounts = append(accounts, m.account)
		}
	}
	w.writeBlock(fmt.Sprintf("%q", SystemAccount), func() {
		w.writeList("exports", func() {
			w.writeLine("{ service: %q, response_type: stream, accounts: %s }", durabilitySubject, quoteList(accounts))
		})
		w.writeList("users", func() {
			if c.System != nil {
				w.writeLine("{ user: %q, password: %s }", c.System.Name, quotePassword(c.System.Password))
			}
		})
	})
}

func (c ServerConfig) valuesFor(tenant string, u User) placeholders {
	s := placeholders{prefix: c.Space.Prefix, shard: c.Shard, user: u.Name, inbox: u.Inbox()}
	if tenant != "" {
		s.tenant = subject.Escape(tenant)
	}
	return s
}

// quotePassword writes an environment reference without quotes and anything else with quotes.
func quotePassword(p string) string {
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

func (w *confWriter) writeLine(format string, args ...any) {
	w.buf.WriteString(strings.Repeat("  ", w.depth))
	fmt.Fprintf(&w.buf, format, args...)
	w.buf.WriteByte('\n')
}

func (w *confWriter) writeNested(open, end string, body func()) {
	w.writeLine("%s", open)
	w.depth++
	body()
	w.depth--
	w.writeLine("%s", end)
}

func (w *confWriter) writeBlock(name string, body func()) { w.writeNested(name+" {", "}", body) }
func (w *confWriter) writeList(name string, body func())  { w.writeNested(name+": [", "]", body) }

func (w *confWriter) writeUser(u User, s placeholders) {
	r := roles[u.Role]
	w.writeNested("{", "}", func() {
		w.writeLine("user: %q, password: %s", u.Name, quotePassword(u.Password))
		w.writeBlock("permissions", func() {
			if len(r.pub) == 0 { // an empty allow list would allow everything
				w.writeLine("publish: { deny: [\">\"] }")
			} else {
				w.writeLine("publish: { allow: %s, deny: %s }", quoteList(s.fillAll(r.pub)), quoteList(s.fillAll(r.denyPub)))
			}
			w.writeLine("subscribe: { allow: %s }", quoteList(s.fillAll(r.sub)))
		})
	})
}

func quoteList(list []string) string {
	q := make([]string, len(list))
	for i, s := range list {
		q[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(q, ", ") + "]"
}
