package conn

import (
	"strings"
	"testing"
)

func TestBadDSN(t *testing.T) {
	for dsn, why := range map[string]string{
		"":                               "no address",
		"http://u:secret@127.0.0.1:8123": "HTTP",
		"clickhouse://u:secret@127.0.0.1:9000/a;b":  "database name",
		"clickhouse://u:secret@127.0.0.1:1/x":       "nobody there",
		"clickhouse://u:secret@127.0.0.1:9000?%zz":  "escape",
		"clickhouse://u:secret@127.0.0.1:port/name": "port",
	} {
		db, err := Open(t.Context(), dsn)
		if err == nil {
			db.Close()
			t.Errorf("%s: no error", why)
			continue
		}
		if s := err.Error(); len(s) == 0 || strings.Contains(s, "secret") {
			t.Errorf("%s: %s", why, s)
		}
		connects := why == "nobody there" || why == "escape"
		if refused := CheckDSN(dsn); connects != (refused == nil) || refused != nil && refused.Error() != err.Error() {
			t.Errorf("%s: without a connection: %v", why, refused)
		}
	}
}

func TestOnlyLocal(t *testing.T) {
	for want, lists := range map[bool][][]string{
		true:  {{"127.0.0.1:9000"}, {"localhost:1"}, {"[::1]:9000", "127.1.2.3:9"}},
		false: {nil, {"10.0.0.1:9000"}, {"127.0.0.1:9000", "db.example:9000"}, {"127.0.0.1"}, {"127.0.0.1.example:9000"}},
	} {
		for _, list := range lists {
			if onlyLocal(list) != want {
				t.Errorf("%v: %v", list, !want)
			}
		}
	}
}
