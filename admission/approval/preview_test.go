package approval

import (
	"encoding/json"
	"maps"
	"runtime"
	"strings"
	"testing"
)

const arguments = `{"to":"a@example.com","amount":12.5,"urgent":true,"note":null,"list":[],"password":"hunter2-secret","api_key":"k",
	"header":{"Authorization":"Bearer abc","lang":"en"},"body":"line one","sk-abcdefghijklmnop1234567890":"v","blob":"QWxhZGRpbjpvcGVuIHNlc2FtZQ0123456789","items":[{"price":3}]}`

func TestPreviewWithholdsEverything(t *testing.T) {
	p := Preview{Protocol: "agenthook", Source: "rt1", Reasons: []string{}}.Describe("https://user:hunter2-secret@host", tree(t, arguments), nil)
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"a@example.com", "12.5", "hunter2", "Bearer", "line one", "QWxh", `"en"`, "sk-abc"} {
		if strings.Contains(string(b), value) {
			t.Errorf("%q is in %s", value, b)
		}
	}
	for _, place := range []string{`"/to"`, `"/amount"`, `"/header/Authorization"`, `"/items/0/price"`, `"/list"`} {
		if !strings.Contains(string(b), place) {
			t.Errorf("%s is not in %s", place, b)
		}
	}
	for _, i := range p.Arguments {
		if i.Value != "" || !i.Withheld {
			t.Errorf("%+v", i)
		}
	}
	if p.Resource.Type != "string" || p.Resource.Size != 32 || !p.Resource.Withheld {
		t.Errorf("resource %+v", p.Resource)
	}
}

func TestPreviewShowsWhatTheTermsName(t *testing.T) {
	p := Preview{}.Describe("outbox", tree(t, arguments), []string{
		"/to", "/amount", "/urgent", "/note", "/items/0/price", "resource", "/password", "/api_key", "/header/Authorization", "/header/lang", "/blob", "/list", "/nowhere", "/sk-abcdefghijklmnop1234567890",
	})
	got := map[string]string{}
	for _, i := range p.Arguments {
		if i.Value != "" {
			got[i.Path] = i.Value
		}
	}
	want := map[string]string{"/to": `"a@example.com"`, "/amount": "12.5", "/urgent": "true", "/note": "null", "/items/0/price": "3", "/header/lang": `"en"`}
	for path, v := range want {
		if got[path] != v {
			t.Errorf("%s is %q, want %q", path, got[path], v)
		}
	}
	for path, v := range got {
		if want[path] == "" && path != "/?" {
			t.Errorf("%s is shown: %s", path, v)
		}
	}
	if p.Resource.Value != `"outbox"` {
		t.Errorf("%+v", p.Resource)
	}
}

// A value that the terms name and a reviewer does not see says why; one that they do not name does not.
func TestPreviewSaysWhyAValueIsWithheld(t *testing.T) {
	args := tree(t, `{"payee":{"name":"Dana","iban":"FR7630006000011234567890189","pin":{"token":"1"}},"author":"x","text":"line\nbreak","mail":"`+strings.Repeat("a ", 200)+`","list":[],"other":1}`)
	p := Preview{}.Describe("x\ny", args, []string{"/payee", "/author", "/text", "/mail", "/list", "resource"})
	got := map[string]string{"resource": p.Resource.Why}
	for _, i := range p.Arguments {
		got[i.Path] = i.Value + i.Why
	}
	want := map[string]string{"resource": WhyForm, "/payee/name": `"Dana"`, "/payee/iban": WhySecret, "/payee/pin/token": WhyName, "/author": WhyName, "/text": WhyForm, "/mail": WhyLong, "/list": WhyNested, "/other": ""}
	if !maps.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestPreviewIsBounded(t *testing.T) {
	wide := map[string]any{}
	for i := range 1000 {
		wide[strings.Repeat("k", 1+i%60)+string(rune('a'+i%26))+strings.Repeat("x", i%3)+string(rune('0'+i%10))+strings.Repeat("y", i%7)] = json.Number("1")
	}
	deep := any("x")
	for range 50 {
		deep = map[string]any{"k": deep}
	}
	p := Preview{Tool: strings.Repeat("é", 1000)}.Describe(nil, wide, nil)
	if len(p.Arguments) != maxItems || p.More != len(wide)-maxItems || len(p.Tool) > maxNameBytes {
		t.Errorf("%d arguments, %d more, a name of %d bytes", len(p.Arguments), p.More, len(p.Tool))
	}
	q := Preview{}.Describe(nil, map[string]any{"k": deep}, nil)
	if len(q.Arguments) != 1 || q.Arguments[0].Type != "object" {
		t.Errorf("%+v", q.Arguments)
	}
	long := Preview{}.Describe(nil, map[string]any{"k": strings.Repeat("a ", 200)}, []string{"/k"})
	if !long.Arguments[0].Withheld {
		t.Error("a long value is shown")
	}
}

// TestPreviewOfALongName counts what a preview allocates: a long name must not be copied for
// every argument below it.
func TestPreviewOfALongName(t *testing.T) {
	items := make([]any, 1024)
	for i := range items {
		items[i] = []any{"b"}
	}
	name := strings.Repeat("n", 64<<10)
	args := map[string]any{name: items}
	for what, show := range map[string][]string{"nothing is shown": nil, "values are shown": {"/to", "/" + name + "/3/0"}} {
		t.Run(what, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			p := Preview{}.Describe(nil, args, show)
			runtime.ReadMemStats(&after)
			if len(p.Arguments) != maxItems || p.More != len(items)-maxItems {
				t.Errorf("%d arguments, %d more", len(p.Arguments), p.More)
			}
			if got := p.Arguments[3]; (got.Value == `"b"`) != (show != nil) {
				t.Errorf("%+v", got)
			}
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 2<<20 {
				t.Errorf("arguments of 70 KiB make %d MiB of garbage", grown>>20)
			}
		})
	}
}

func TestPreviewComparesWholeNames(t *testing.T) {
	args := map[string]any{"a": "1", "ab": "2", "c": map[string]any{"": "3", "/": "4", "~2": "5", "d": []any{"6"}}, "resource": "7"}
	for pointer, want := range map[string]string{
		"/a": "1", "/ab": "2", "/c/": "3", "/c/~1": "4", "/c/~02": "5", "/c/d/0": "6", "/resource": "7",
		"/c": "3465", "/c/d": "6", "/": "", "": "", "/c/~2": "", "/c//": "", "/c/d/00": "", "resource": "", "a": "",
	} {
		got := ""
		for _, i := range (Preview{}.Describe(nil, args, []string{pointer}).Arguments) {
			got += strings.Trim(i.Value, `"`)
		}
		if got != want {
			t.Errorf("%q shows %q, want %q", pointer, got, want)
		}
	}
}

func TestPreviewDigest(t *testing.T) {
	a, b := Preview{Tool: "a"}, Preview{Tool: "b"}
	da, err := a.Digest(keyed)
	if err != nil {
		t.Fatal(err)
	}
	if db, _ := b.Digest(keyed); da == db || !strings.HasPrefix(da, "hmac-sha256:") {
		t.Error(da, db)
	}
}

func FuzzPreview(f *testing.F) {
	f.Add(arguments, "/to", "outbox")
	f.Add(`{"":{"~/":[["\u0000"]]}}`, "/", "")
	f.Fuzz(func(t *testing.T, args, show, resource string) {
		var m map[string]any
		if json.Unmarshal([]byte(args), &m) != nil {
			return
		}
		p := Preview{Reasons: []string{}}.Describe(resource, m, []string{show})
		if len(p.Arguments) > maxItems {
			t.Error("too many arguments")
		}
		for _, i := range p.Arguments {
			if (i.Value == "") != i.Withheld || len([]rune(i.Value)) > 10*maxShownValue {
				t.Errorf("%+v", i)
			}
		}
	})
}
