package streams

import (
	"net/url"
	"strings"
)

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
