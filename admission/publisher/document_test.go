package publisher

import (
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/countersign-dev/countersign/admission/policy/names"
)

// What one document says of itself.
func TestParse(t *testing.T) {
	hook := func(fp string) obj {
		return obj{"hook_trust": obj{"hook_id": "pre", "runtime": "r", "hook_event": "PreToolUse", "fingerprint": fp}}
	}
	for name, c := range map[string]struct {
		data []byte
		want string // the document's name, or what the error says
	}{
		"catalogue":                   {tools(t, "mail", obj{"name": "a.b"}).Data, "tools.mail"},
		"manifest":                    {manifest(t, "com.example.x", "x").Data, "manifest.com.example.x"},
		"registration":                {registration(t, "rt1", "com.example.x", "x", nil).Data, "registration.rt1.com.example.x"},
		"registration of a hard name": {registration(t, "r t", "com.example.x", "x", nil).Data, "registration.=ciB0.com.example.x"},
		"manifest with a hook":        {text(t, manifestOf("com.example.x", "x", hook("sha256:"+digits))), "manifest.com.example.x"},
		"not JSON":                    {[]byte("{"), "not_json"},
		"a list":                      {[]byte("[]"), "not_object"},
		"twice the same key":          {[]byte(`{"schema":"a","schema":"b"}`), "duplicate_key"},
		"no schema":                   {[]byte(`{}`), "names none of"},
		"another schema":              {[]byte(`{"schema":"https://example.org"}`), "names none of"},
		"schema no text":              {[]byte(`{"schema":1}`), "names none of"},
		"a profile in the manifest":   {text(t, manifestOf("com.example.x", "x", obj{"profiles": list{"admission-bound"}})), "/profiles: is not a known property"},
		"a placeholder fingerprint":   {text(t, manifestOf("com.example.x", "x", hook("sha256:example-redacted"))), "64 hexadecimal digits"},
		"one hook twice": {text(t, manifestOf("com.example.x", "x", obj{"hook_trust": list{
			hook("sha256:" + digits)["hook_trust"], hook("sha256:" + digits)["hook_trust"]}})), "one hook twice"},
		"a name that is not canonical": {tools(t, "mail", obj{"name": "Bash"}).Data, "/tools/0/name: must match"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(c.data)
			if err == nil && p.Name != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v", p.Name, err)
			}
		})
	}
}

// What two documents, or two tools, say of the same.
func TestConflicts(t *testing.T) {
	for name, c := range map[string]struct {
		docs []Document
		want string // "" if there is none
	}{
		"two catalogues":                  {[]Document{tools(t, "a", obj{"name": "a.b"}), tools(t, "b", obj{"name": "a.c"})}, ""},
		"one tool twice":                  {[]Document{tools(t, "a", obj{"name": "a.b"}), tools(t, "b", obj{"name": "a.b"})}, "two tools of this name"},
		"one alias of two tools":          {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"x"}}, obj{"name": "a.c", "aliases": list{"x"}})}, "one of a.b too"},
		"one alias in two cases":          {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"x"}}, obj{"name": "a.c", "aliases": list{"X"}})}, "one of a.b too"},
		"two cases of one tool":           {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"x", "X"}})}, ""},
		"an alias that is a tool":         {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"a.c"}}), tools(t, "z", obj{"name": "a.c"})}, "no alias may be"},
		"an alias that is its own tool":   {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"a.b"}})}, "no alias may be"},
		"an alias that is a tool in caps": {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"A.C"}}, obj{"name": "a.c"})}, "one of a.c too"},
		"a publisher's alias of a tool":   {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{obj{"name": "a.c", "publisher": "p"}}}, obj{"name": "a.c"})}, "no alias may be"},
		"a publisher's alias of a tool in caps": {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{obj{"name": "A.C", "publisher": "p"}}}, obj{"name": "a.c"})},
			"but for its case, the name of a.c"},
		"a publisher's alias of its own tool in caps": {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{obj{"name": "A.B", "publisher": "p"}}})}, ""},
		"one alias of two publishers": {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{obj{"name": "x", "publisher": "p"}}},
			obj{"name": "a.c", "aliases": list{obj{"name": "x", "publisher": "q"}, "x"}})}, ""},
		"an alias with a homoglyph":       {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"s\u0435nd"}})}, "policies refuse it"},
		"an alias with an invisible":      {[]Document{tools(t, "a", obj{"name": "a.b", "aliases": list{"send\u200b"}})}, "policies refuse it"},
		"two manifests of one source":     {[]Document{manifest(t, "com.example.a", "x"), manifest(t, "com.example.b", "x")}, "for the same source"},
		"two registrations of one source": {[]Document{registration(t, "p", "com.example.a", "x", nil), registration(t, "p", "com.example.b", "x", nil)}, "same publisher and source"},
		"a manifest, and registered":      {[]Document{manifest(t, "com.example.a", "x"), registration(t, "p", "com.example.a", "x", nil)}, ""},
		"under another's name":            {[]Document{{Tenant: "acme", Name: "tools.b", Data: tools(t, "a", obj{"name": "a.b"}).Data}}, "is named"},
	} {
		t.Run(name, func(t *testing.T) {
			switch err := Compile(c.docs, 1).Err(); {
			case err == nil && c.want != "":
				t.Error("it was overlooked")
			case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
				t.Error(err)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	for name, c := range map[string]struct{ tenant, doc, key string }{
		"plain":            {"acme", "tools.mail", "acme.tools.mail"},
		"reverse DNS":      {"acme", "manifest.uk.example.codex", "acme.manifest.uk.example.codex"},
		"tenant with dots": {"a.b c", "tools.mail", "=YS5iIGM.tools.mail"},
		"two dots":         {"acme", "manifest.a..b", "acme.manifest.==YS4uYg"},
		"registration":     {"acme", "registration.=ciB0.com.x", "acme.registration.=ciB0.com.x"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Key(c.tenant, c.doc); got != c.key {
				t.Errorf("key %s", got)
			}
			tenant, doc, err := ParseKey(c.key)
			if err != nil || tenant != c.tenant || doc != c.doc {
				t.Errorf("%q %q %v", tenant, doc, err)
			}
		})
	}
	for _, key := range []string{"", "acme", "acme.", "acme.tools", "acme.tools.", ".tools.mail", "=.tools.mail", "=!.tools.mail", "=YWNtZQ.tools.mail",
		"acme.tools.==bWFpbA", "acme.tools.==!"} {
		if _, _, err := ParseKey(key); err == nil {
			t.Errorf("%q was read", key)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		tenant, doc := rapid.StringN(1, 20, -1).Draw(t, "tenant"), "tools."+rapid.StringMatching(`[a-z0-9][a-z0-9.-]{0,20}[a-z0-9]`).Draw(t, "name")
		key := Key(tenant, doc)
		if gotTenant, gotDoc, err := ParseKey(key); err != nil || gotTenant != tenant || gotDoc != doc {
			t.Fatalf("%q: %q %q %v", key, gotTenant, gotDoc, err)
		}
		if strings.Contains(key, "..") || strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=.") != "" {
			t.Fatalf("%q is no key", key)
		}
	})
}

func TestLoad(t *testing.T) {
	catalogue := tools(t, "mail", obj{"name": "email.purge"}).Data
	file := func(b []byte) *fstest.MapFile { return &fstest.MapFile{Data: b} }
	s, err := Load(fstest.MapFS{"a.json": file(catalogue), "notes.txt": file([]byte("x"))})
	if err != nil || s.Lookup("anybody", "rt", "email.purge").Status != Known || s.State("anybody") == nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]fstest.MapFS{
		"empty":               {},
		"nothing of ours":     {"notes.txt": file([]byte("x"))},
		"a broken file":       {"a.json": file(catalogue), "b.json": file([]byte("{"))},
		"one document twice":  {"a.json": file(catalogue), "b.json": file(catalogue)},
		"two that contradict": {"a.json": file(catalogue), "b.json": file(tools(t, "b", obj{"name": "email.purge"}).Data)},
	} {
		if _, err := Load(dir); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzParse: whatever is accepted can be found under its name, compiles alone or
// denies, and gives no alias that policies could not look at.
func FuzzParse(f *testing.F) {
	for _, d := range []Document{
		tools(f, "mail", obj{"name": "a.b", "aliases": list{"x", obj{"name": "y", "publisher": "p"}}, "mandate": obj{"total_minor": "/a", "currency": "EUR"}}),
		manifest(f, "com.example.x", "x"), registration(f, "p", "com.example.x", "x", obj{"profiles": list{"admission-bound"}}),
	} {
		f.Add(d.Data)
	}
	f.Add(text(f, manifestOf("a..b", "x", obj{"hook_trust": list{obj{"hook_id": "h", "runtime": "r", "hook_event": "e", "expected_fingerprint": "sha256:" + digits}}})))
	f.Add([]byte(`{"schema":"` + toolsSchema + `","name":"a","tools":[{"name":"a.b","Name":"c.d"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse(data)
		if err != nil {
			return
		}
		if tenant, name, err := ParseKey(Key("acme", p.Name)); err != nil || tenant != "acme" || name != p.Name {
			t.Fatalf("%q: %q %v", p.Name, name, err)
		}
		s := Compile([]Document{{Tenant: "acme", Name: p.Name, Data: data}}, 1)
		if s.Err() != nil {
			if Judge(s.Lookup("acme", "p", "x"), Claim{}) == nil {
				t.Fatal("what cannot be used denies nothing")
			}
			return
		}
		for _, tool := range p.tools {
			for _, a := range tool.Aliases {
				if got := s.Lookup("acme", a.publisher, a.name); !names.ValidTool(a.name) || got.Status != Known || got.Entry.Name != tool.Name {
					t.Fatalf("alias %q of %s", a.name, tool.Name)
				}
			}
		}
	})
}
