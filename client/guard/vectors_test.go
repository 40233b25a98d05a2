package guard_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
	"github.com/countersign-dev/countersign/client/guard"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/strictjson"
)

var update = flag.Bool("update", false, "write the vectors of the SDKs anew")

// vectorsDir holds the vectors that the SDKs of all languages read.
const vectorsDir = "../../sdk/vectors"

// canonicalVector is a JSON text with its RFC 8785 form; Out is absent if the text must be refused.
type canonicalVector struct {
	In  string `json:"in"`
	Out string `json:"out,omitempty"`
}

// receiptVector is a call that is about to run with what came as its receipt. Code is "" if it may run.
type receiptVector struct {
	Name    string     `json:"name"`
	Receipt string     `json:"receipt"`
	Key     string     `json:"key"`
	Records []string   `json:"records,omitempty"` // key records and retirements that are known beforehand
	Call    vectorCall `json:"call"`
	Now     string     `json:"now"`
	Code    string     `json:"code"`
}

type vectorCall struct {
	Tenant     string  `json:"tenant"`
	Source     string  `json:"source"`
	Session    string  `json:"session"`
	ToolCallID string  `json:"tool_call_id"`
	Tool       string  `json:"tool"`
	Arguments  *string `json:"arguments"` // a JSON text; null for a protocol without arguments
}

var canonicalTexts = []string{
	`{}`, `[]`, `null`, `true`, `"é"`, `{"b":1,"a":2}`, `{"a":[1,2.50,-0,-0.0,0.1]}`, `1e21`, `1e-7`, `5e-324`, `1.7976931348623157e308`, `9007199254740992`, `0.10000000000000000001`, `123e-2`, `1.0`, `100e-2`,
	`"\u0000\u001f\b\f\n\r\t\"\\\/"`, `"\u20ac\ud83d\ude00"`, `{"\ufb33":1,"\ud83d\ude00":2,"1":3,"\r":4,"\u20ac":5}`, `{"a":{"z":[{"y":null}]}}`,
	// Refused: two readers could read them differently.
	`{"a":1,"a":2}`, `"\ud800"`, `9007199254740993`, `1e999`, `NaN`, `{"a":}`, ``, `{"a":1} x`,
}

func canonicalVectors() (list []canonicalVector) {
	for _, text := range canonicalTexts {
		v := canonicalVector{In: text}
		if tree, err := strictjson.Parse([]byte(text), strictjson.DefaultLimits); err == nil {
			if out, err := strictjson.Canonical(tree); err == nil {
				v.Out = string(out)
			}
		}
		list = append(list, v)
	}
	return list
}

func receiptVectors(t *testing.T) (publicKey string, list []receiptVector) {
	honest, other := newIssuer(t, 1), newIssuer(t, 2)
	args := `{"to":"dana@acme.example","n":1.0}`
	call := vectorCall{"acme", "rt1", "s1", "c1", "send_email", &args}
	add := func(name string, i issuer, change func(*receipt.Claims), edit func(*receiptVector)) {
		e := i.execution(t, "n1", func(c *receipt.Claims) {
			bound := []byte(`{"n":1,"to":"dana@acme.example"}`)
			ok(t, c.BindArguments(bytes.Repeat([]byte{7}, receipt.SaltSize), bound))
			if change != nil {
				change(c)
			}
		})
		v := receiptVector{Name: name, Receipt: e.Receipt, Key: compact(t, i.record(t)), Call: call, Now: noon.Add(time.Second).Format(time.RFC3339)}
		if edit != nil {
			edit(&v)
		}
		list = append(list, v)
	}
	text := func(s string) *string { return &s }
	add("good", honest, nil, nil)
	add("the key is not known", honest, nil, func(v *receiptVector) { v.Key = "" })
	add("another key's record", honest, nil, func(v *receiptVector) { v.Key = compact(t, other.record(t)) })
	add("a record that was changed", honest, nil, func(v *receiptVector) { v.Key = strings.Replace(v.Key, `"EdDSA"`, `"EdDSa"`, 1) })
	add("a signature that was changed", honest, nil, func(v *receiptVector) { v.Receipt = v.Receipt[:len(v.Receipt)-10] + "AAAAAAAAAA" })
	add("no receipt", honest, nil, func(v *receiptVector) { v.Receipt = "" })
	add("not a receipt", honest, nil, func(v *receiptVector) { v.Receipt = "a.b.c" })
	add("another tenant", honest, nil, func(v *receiptVector) { v.Call.Tenant = "globex" })
	add("another publisher", honest, nil, func(v *receiptVector) { v.Call.Source = "rt2" })
	add("another session", honest, nil, func(v *receiptVector) { v.Call.Session = "s2" })
	add("another call", honest, nil, func(v *receiptVector) { v.Call.ToolCallID = "c2" })
	add("another tool", honest, nil, func(v *receiptVector) { v.Call.Tool = "Send_Email" })
	add("other arguments", honest, nil, func(v *receiptVector) { v.Call.Arguments = text(`{"to":"eve@acme.example","n":1}`) })
	add("the same arguments, written differently", honest, nil, func(v *receiptVector) { v.Call.Arguments = text(`{"n":1e0,"to":"d\u0061na@acme.example"}`) })
	add("no arguments", honest, nil, func(v *receiptVector) { v.Call.Arguments = nil })
	add("a receipt without arguments", honest, func(c *receipt.Claims) { ok(t, c.BindArguments(nil, nil)) }, nil)
	add("without arguments on both sides", honest, func(c *receipt.Claims) { ok(t, c.BindArguments(nil, nil)) }, func(v *receiptVector) { v.Call.Arguments = nil })
	add("a denial", honest, func(c *receipt.Claims) { c.Verdict = events.Deny }, nil)
	add("of an admitter that observes", honest, func(c *receipt.Claims) { c.Mode = events.ModeObserve }, nil)
	add("too old", honest, nil, func(v *receiptVector) { v.Now = noon.Add(time.Hour).Format(time.RFC3339) })
	add("at its end", honest, func(c *receipt.Claims) { c.ExpiresAt = events.At(noon.Add(time.Minute)) }, func(v *receiptVector) { v.Now = noon.Add(time.Minute).Format(time.RFC3339) })
	add("of the future", honest, nil, func(v *receiptVector) { v.Now = noon.Add(-time.Minute).Format(time.RFC3339) })
	add("of a future within the leeway", honest, nil, func(v *receiptVector) { v.Now = noon.Add(-20 * time.Second).Format(time.RFC3339) })
	retired := func(i issuer) string { return string(i.retirement(t)) }
	add("the key is retired", honest, nil, func(v *receiptVector) { v.Records = []string{v.Key, retired(honest)} })
	add("the key is retired, in another order", honest, nil, func(v *receiptVector) { v.Records = []string{retired(honest)} })
	add("another key is retired", honest, nil, func(v *receiptVector) { v.Records = []string{retired(issuer{voucher: honest.voucher, key: other.key})} })
	add("a retirement for a key record", honest, nil, func(v *receiptVector) { v.Key = retired(honest) })
	add("a header with another member", honest, nil, func(v *receiptVector) {
		v.Receipt = withHeader(v.Receipt, `{"alg":"EdDSA","cty":"json","kid":"`+honest.key.ID+`","typ":"`+signing.TypeReceipt+`"}`)
	})
	add("a header in another order", honest, nil, func(v *receiptVector) {
		v.Receipt = withHeader(v.Receipt, `{"kid":"`+honest.key.ID+`","alg":"EdDSA","typ":"`+signing.TypeReceipt+`"}`)
	})
	for name, spoil := range spoiledClaims {
		add(name, honest, nil, func(v *receiptVector) { v.Receipt = spoiled(t, honest, v.Receipt, spoil) })
	}
	slices.SortStableFunc(list, func(a, b receiptVector) int { return strings.Compare(a.Name, b.Name) })
	for i := range list {
		list[i].Code = codeOf(t, honest.publicKey, list[i])
	}
	return honest.publicKey, list
}

// spoiledClaims are claims that Issue would not sign, and that a reader must refuse all the same.
var spoiledClaims = map[string]func(map[string]any){
	"claims without a nonce":          func(c map[string]any) { delete(c, "nonce") },
	"claims without a decision":       func(c map[string]any) { c["decision_id"] = "" },
	"claims with another member":      func(c map[string]any) { c["extra"] = "x" },
	"claims for a week":               func(c map[string]any) { c["expires_at"] = noon.Add(7 * 24 * time.Hour).Format(time.RFC3339) },
	"claims with a short salt":        func(c map[string]any) { c["args_salt"] = "AAAA" },
	"claims with a number for a text": func(c map[string]any) { c["args_hash"] = 5.0 },
	"claims with a day that is none":  func(c map[string]any) { c["issued_at"] = "2026-02-30T00:00:00Z" },
	"claims of an unknown mode":       func(c map[string]any) { c["mode"] = "off" },
	"claims of another version":       func(c map[string]any) { c["v"] = 2.0 },
	"claims with v as true":           func(c map[string]any) { c["v"] = true },
}

// spoiled signs the claims of a receipt again, changed.
func spoiled(t *testing.T, i issuer, token string, spoil func(map[string]any)) string {
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	ok(t, err)
	claims := map[string]any{}
	ok(t, json.Unmarshal(payload, &claims))
	spoil(claims)
	payload, err = strictjson.Canonical(claims)
	ok(t, err)
	token, err = i.key.Sign(signing.TypeReceipt, payload)
	ok(t, err)
	return token
}

// withHeader is a receipt of newIssuer(t, 1), signed again under another header.
func withHeader(token, header string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	signed := b64([]byte(header)) + "." + strings.Split(token, ".")[1]
	return signed + "." + b64(ed25519.Sign(ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize)), []byte(signed)))
}

// codeOf is the Go client's word on a vector.
func codeOf(t *testing.T, publicKey string, v receiptVector) string {
	now, err := time.Parse(time.RFC3339, v.Now)
	ok(t, err)
	records := make([][]byte, len(v.Records))
	for i, r := range v.Records {
		records[i] = []byte(r)
	}
	g, err := guard.New(guard.Options{Tenant: v.Call.Tenant, PublicKey: publicKey, Records: records, Now: func() time.Time { return now }})
	ok(t, err)
	e := guard.Execution{Receipt: v.Receipt, Key: v.Key, Source: v.Call.Source, Session: v.Call.Session, ToolCallID: v.Call.ToolCallID, Tool: v.Call.Tool}
	if v.Call.Arguments != nil {
		e.Arguments = []byte(*v.Call.Arguments)
	}
	return guard.Code(g.Check(e))
}

func compact(t *testing.T, b []byte) string {
	var out bytes.Buffer
	ok(t, json.Compact(&out, b))
	return out.String()
}

// The vectors that the SDKs read are what the Go client says.
func TestVectors(t *testing.T) {
	publicKey, receipts := receiptVectors(t)
	for file, content := range map[string]any{
		"canonical.json": canonicalVectors(),
		"receipts.json":  map[string]any{"public_key": publicKey, "cases": receipts},
	} {
		want, err := json.MarshalIndent(content, "", " ")
		ok(t, err)
		want = append(want, '\n')
		path := filepath.Join(vectorsDir, file)
		if *update {
			ok(t, os.WriteFile(path, want, 0o644))
		}
		if have, err := os.ReadFile(path); err != nil || !bytes.Equal(have, want) {
			t.Errorf("%s is not what the Go client says (%v): go test ./client/guard -run TestVectors -update", path, err)
		}
	}
	codes := map[string]bool{}
	for _, v := range receipts {
		codes[v.Code] = true
	}
	if !codes[""] || len(codes) < 14 {
		t.Errorf("the vectors have only %d outcomes: %v", len(codes), codes)
	}
}
