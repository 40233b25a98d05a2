package redact

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// maskText masks the findings in one text. The spans are in order, do not overlap, and lie in s; out
// is s with each span replaced by its placeholder.
func maskText(s string) (out string, spans []Span) {
	var w documentWalker
	out, _ = w.redactSpans(s)
	return out, Scan(s)
}

// Test secrets are put together from parts, so that scanners of repositories do
// not take this file for a leak.
var (
	alpha36  = "0123456789abcdefghijABCDEFGHIJ012345"
	awsID    = "AKIA" + "IOSFODNN7EXAMPLE"
	github   = "ghp_" + alpha36
	gitlab   = "glpat-" + "abcDEF0123456789_xyz"
	slack    = "xoxb-" + "123456789012-abcdefABCDEF"
	stripe   = "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc"
	openai   = "sk-" + "proj-" + "Ab3dEf6hIj9lMn2pQr5t"
	claude   = "sk-" + "ant-api03-" + "Ab3dEf6hIj9lMn2pQr5t-xyz"
	google   = "AIza" + "SyA0123456789abcdefghijklmnopqrstuvw"
	jwtToken = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
	pemKey   = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIBOgIBAAJBAK\nj34GkxFhD90v\n-----END RSA PRIVATE KEY-----"
	natsUser = "SU" + strings.Repeat("ACDE2345", 7)
	random40 = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	noteKey  = "PRIVATE+KEY+" + "example.org/log+0123abcd+AfD0o1Nh7qT0m8Zz"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"aws":                    {"id " + awsID + ", done", "id [redacted:aws_access_key_id], done"},
		"github":                 {"push with " + github, "push with [redacted:github_token]"},
		"github glued":           {"x" + github, "x[redacted:github_token]"},
		"gitlab":                 {gitlab, "[redacted:gitlab_token]"},
		"slack":                  {slack + ".", "[redacted:slack_token]."},
		"slack webhook":          {"https://hooks.slack.com/services/T0000/B0000/abcDEF123456", "https://[redacted:slack_webhook]"},
		"stripe":                 {stripe, "[redacted:stripe_key]"},
		"openai":                 {"key is " + openai, "key is [redacted:api_key]"},
		"anthropic":              {claude, "[redacted:api_key]"},
		"google":                 {google, "[redacted:google_api_key]"},
		"jwt":                    {"got " + jwtToken + " back", "got [redacted:jwt] back"},
		"pem":                    {"a\n" + pemKey + "\nb", "a\n[redacted:private_key]\nb"},
		"pem cut short":          {"-----BEGIN PRIVATE KEY-----\nMIIBOgIBAAJBAK", "[redacted:private_key]"},
		"pem in assignment":      {"key=" + pemKey, "key=[redacted:private_key]"},
		"pem after password":     {"password=" + pemKey, "password=[redacted:private_key]"},
		"nats seed":              {natsUser, "[redacted:nats_seed]"},
		"note signer":            {noteKey, "[redacted:note_signing_key]"},
		"bearer":                 {"Bearer abcdef0123456789", "Bearer [redacted:bearer_token]"},
		"basic":                  {"Basic dXNlcjpwYXNz", "Basic [redacted:basic_auth]"},
		"url":                    {"postgres://app:s3cr3t@db:5432/x", "postgres://app:[redacted:url_password]@db:5432/x"},
		"url at in password":     {"amqp://a:p@ss@h/", "amqp://a:[redacted:url_password]@h/"},
		"url, token as user":     {"https://" + random40[:7] + "7" + alpha36 + "@dev.azure.com/o/_git/r", "https://[redacted:url_password]@dev.azure.com/o/_git/r"},
		"url, hex token as user": {"git clone https://" + strings.Repeat("3f2a9b0c", 5) + "@git.example/r.git", "git clone https://[redacted:url_password]@git.example/r.git"},
		"url, telegram":          {"https://api.telegram.org/bot123456789:AA" + alpha36[:33] + "/getMe", "https://api.telegram.org/bot[redacted:telegram_token]/getMe"},
		"url, signed by google":  {"https://storage.example/o?X-Goog-Expires=9&X-Goog-Signature=" + strings.Repeat("3f2a", 9) + "&x", "https://storage.example/o?X-Goog-Expires=9&X-Goog-Signature=[redacted:credential_assignment]&x"},
		"laravel":                {"APP_KEY=base64:" + alpha36 + alpha36 + "=", "[redacted:api_key]"},
		"seed phrase":            {"Mnemonic: " + strings.Repeat("abandon ability able ", 4) + "\nThe end", "Mnemonic: [redacted:credential_assignment] \nThe end"},
		"hash, shadow":           {"root:$6$Zq8vT1kL$" + alpha36 + ":19000:0", "root:[redacted:crypt_hash]:19000:0"},
		"hash, md5":              {"root:$1$Zq8vT1kL$" + alpha36[:22] + ":19000", "root:[redacted:crypt_hash]:19000"},
		"hash, short salt":       {"$1$xyz$" + alpha36[:22] + " $apr1$x$" + alpha36[:22], "[redacted:crypt_hash] [redacted:crypt_hash]"},
		"hash, final dot":        {"$1$xyz$" + alpha36[:21] + ". $1$salt$UsdFqFVB.FsuinRDK5eE..", "[redacted:crypt_hash]. [redacted:crypt_hash].."},
		"hash, argon2":           {`"$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$` + alpha36 + `"`, `"$argon2id$v=19$m=65536,t=3[redacted:crypt_hash]"`},
		"hash, scrypt":           {"$scrypt$ln=16,r=8,p=1$c29tZXNhbHQ$" + alpha36, "$scrypt$ln=16,r=8[redacted:crypt_hash]"},
		"hash, bcrypt":           {"hash $2y$10$" + alpha36 + alpha36[:17], "hash [redacted:crypt_hash]"},
		"assignment":             {"password=hunter2 x", "password=[redacted:credential_assignment] x"},
		"assignment comma":       {"user=a, password=hunter2, to=b", "user=a, password=[redacted:credential_assignment], to=b"},
		"assignment env":         {"export DB_PASSWORD='hunter 2'", "export DB_PASSWORD='[redacted:credential_assignment]'"},
		"assignment yaml":        {"db:\n  password: swordfish\n", "db:\n  password: [redacted:credential_assignment]\n"},
		"assignment go":          {`apiKey := "abc"`, `apiKey := "[redacted:credential_assignment]"`},
		"assignment ruby":        {`'secret' => 'abc'`, `'secret' => '[redacted:credential_assignment]'`},
		"assignment camel":       {"clientSecret=abc", "clientSecret=[redacted:credential_assignment]"},
		"assignment index":       {`env["API_TOKEN"] = "a1"`, `env["API_TOKEN"] = "[redacted:credential_assignment]"`},
		"json in text":           {`{"user":"a","password":"hun\"ter","n":1}`, `{"user":"a","password":"[redacted:credential_assignment]","n":1}`},
		"json in json":           {`{\"password\":\"hunter2\",\"n\":1}`, `{\"password\":\"[redacted:credential_assignment]\",\"n\":1}`},
		"query":                  {"GET /x?access_token=abc&y=1", "GET /x?access_token=[redacted:credential_assignment]&y=1"},
		"aws secret":             {"aws_secret_access_key = " + random40, "aws_secret_access_key = [redacted:credential_assignment]"},
		"spaced name":            {"the API key: abc-1", "the API key: [redacted:credential_assignment]"},
		"connection string":      {"Server=h;Password=x;Db=y", "Server=h;Password=[redacted:credential_assignment];Db=y"},
		"flag":                   {"mysql --password hunter2 -h x", "mysql --password [redacted:credential_assignment] -h x"},
		"curl user":              {"curl --user dana:hunter2 https://x/", "curl --user dana:[redacted:credential_assignment] https://x/"},
		"flag equals":            {"mysql --password=hunter2 -h x", "mysql --password=[redacted:credential_assignment] -h x"},
		"header in text":         {"curl -H \"Authorization: Bearer xyz\" u", "curl -H \"Authorization: [redacted:credential_assignment]\" u"},
		"cookie in text":         {"Cookie: sid=1; theme=dark\nHost: x", "Cookie: [redacted:credential_assignment]\nHost: x"},
		"weak name, random":      {"key=" + random40, "key=[redacted:high_entropy_value]"},
		"reply token":            {"(reply_token rpl_4f8a2e7d9c1b6a3f).", "(reply_token [redacted:aaep_reply_token])."},
		"token with digits":      {"token: a1b2", "token: [redacted:credential_assignment]"},
		"shape beats assignment": {"token=" + github, "token=[redacted:github_token]"},
		"two":                    {github + " " + awsID, "[redacted:github_token] [redacted:aws_access_key_id]"},
		"unclosed quote":         {`password="hunter2`, `password="[redacted:credential_assignment]`},
		"homoglyph is another":   {"pаssword=hunter2", "pаssword=hunter2"}, // Cyrillic а
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := maskText(tc.in)
			if got != tc.want {
				t.Errorf("maskText(%q)\n got %q\nwant %q", tc.in, got, tc.want)
			}
			if again, spans := maskText(got); again != got {
				t.Errorf("not stable: %q, %v", again, spans)
			}
		})
	}
}

func TestTextKeeps(t *testing.T) {
	for name, s := range map[string]string{
		"prose":            "The password policy changed; a token is needed. Basic authentication is off. Bearer of news.",
		"risk":             "risk-based, disk-usage, task-oriented, sk-learn-based-classifier-with-a-long-name",
		"task id":          "task-0123456789abcdefghij surpl_us xAKIA0123456789ABCDEF",
		"uuid":             "8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f",
		"uuid as key":      "key=8c4f9d12-7a8b-4c3d-9e2f-1a2b3c4d5e6f",
		"sha256":           "sha256:1111111111111111111111111111111111111111111111111111111111111111",
		"hmac":             "hmac-sha256:b4cdd434d7bd264a830505f8c8fa09d85767cf0f31a9e786a1b5f4c9238c736b",
		"hash as key":      "cache_key=b4cdd434d7bd264a830505f8c8fa09d85767cf0f31a9e786a1b5f4c9238c736b",
		"event id":         "evt_b8c4e9a2f5d1a8c4 call_3f8d1a5b2c9e4f7a sess_2c91a7b4d23f1e88 sub_0123456789abcdef",
		"traceparent":      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		"accounts":         "from_account=checking-7821, to_account=savings-3344, amount=500.0",
		"url":              "https://example.invalid:8080/a?b=c&mail=x",
		"ssh url":          "ssh://git@example.invalid/x.git",
		"detached jws":     "eyJhbGciOiJFZERTQSIsImtpZCI6IjY4N2U5YTlkMTE4MTQyYiJ9..4Qm0123456789abcdefghijk",
		"literals":         "password=null secret: none token=undefined api_key=${API_KEY} password={{ vault }}",
		"prose with colon": "secret: never tell; token: optional; cookie: chocolate",
		"page token":       "next_page_token=CAUQAA max_tokens=4096 tokens: 12",
		"public key":       "public_key=AAAAC3NzaC1lZDI1NTE5AAAAIGfoo9BARbaz",
		"certificate":      "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
		"base64 picture":   "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
		"placeholder":      "password=[redacted:credential_assignment] [redacted:jwt]",
		"time":             "2026-06-30T14:22:24.812Z",
		"short":            "a=b",
	} {
		t.Run(name, func(t *testing.T) {
			if got, spans := maskText(s); got != s {
				t.Errorf("%q became %q: %v", s, got, spans)
			}
		})
	}
}

func document(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestDocument(t *testing.T) {
	for name, tc := range map[string]struct{ in, want, hits string }{
		"well-known keys": {`{"Password":"a","api-key":"b","clientSecret":"c","x":{"set_cookie":["a"],"GITHUB_TOKEN":"t"},"access_token":7}`,
			`{"Password":"[redacted:credential_field]","api-key":"[redacted:credential_field]","clientSecret":"[redacted:credential_field]","x":{"set_cookie":"[redacted:credential_field]","GITHUB_TOKEN":"[redacted:credential_field]"},"access_token":"[redacted:credential_field]"}`,
			"/d/Password /d/access_token /d/api-key /d/clientSecret /d/x/GITHUB_TOKEN /d/x/set_cookie"},
		"kept":              {`{"contains_secret":false,"password":null,"token":"","tokens_input":12,"secret_name":"x","reply_token":"rpl_a1","max_token":"x"}`, "", ""},
		"reply token text":  {`{"reply_token":"see rpl_a1","summary":"rpl_a1"}`, `{"reply_token":"see [redacted:aaep_reply_token]","summary":"[redacted:aaep_reply_token]"}`, "/d/reply_token /d/summary"},
		"declared":          {`{"tool_input":{"body":"x","n":{"a":1}},"items":[{"p":1},{"p":2}],"a.b":{"c":"x"}}`, `{"tool_input":{"body":"[redacted:declared_field]","n":"[redacted:declared_field]"},"items":[{"p":"[redacted:declared_field]"},{"p":"[redacted:declared_field]"}],"a.b":{"c":"[redacted:declared_field]"}}`, "/d/a.b/c /d/items/0/p /d/items/1/p /d/tool_input/body /d/tool_input/n"},
		"executed mirrored": {`{"metadata":{"tool_input_executed":{"body":"x"}}}`, `{"metadata":{"tool_input_executed":{"body":"[redacted:declared_field]"}}}`, "/d/metadata/tool_input_executed/body"},
		"name and value":    {`[{"name":"DB_PASSWORD","value":"a b"},{"key":"color","value":"red"}]`, `[{"name":"DB_PASSWORD","value":"[redacted:credential_field]"},{"key":"color","value":"red"}]`, "/d/0/value"},
		"name is empty":     {`{"":"a","n":{"":{"":"b"}},"p":{"":"c","name":"password","value":"d"}}`, `{"":"a","n":{"":{"":"b"}},"p":{"":"c","name":"password","value":"[redacted:credential_field]"}}`, "/d/p/value"},
		"argument vector":   {`{"argv":["x","--password","hunter2","y"],"h":["Authorization","abc"]}`, `{"argv":["x","--password","[redacted:credential_field]","y"],"h":["Authorization","[redacted:credential_field]"]}`, "/d/argv/2 /d/h/1"},
		"secret as key":     {`{"a":{"` + awsID + `":"x"}}`, `{"a":{"[redacted:aws_access_key_id]":"x"}}`, "/d/a/[redacted:aws_access_key_id]"},
		"two in one text":   {`["` + github + " " + awsID + `"]`, `["[redacted:github_token] [redacted:aws_access_key_id]"]`, "/d/0 /d/0"},
		"PINs":              {`{"pin":4821,"card_pin":"482103","led":{"pin":13},"dialog":{"pin":"bottom"},"spin":4821}`, `{"pin":"[redacted:credential_field]","card_pin":"[redacted:credential_field]","led":{"pin":13},"dialog":{"pin":"bottom"},"spin":4821}`, "/d/card_pin /d/pin"},
		"cards as floats": {`{"a":4111111111111111.0,"b":4.111111111111111e15,"c":41111111111111110e-1,"d":4111111111111111.2,"e":4444444444444444442,"f":4111111111111112.0,"g":0.4111111111111111}`,
			`{"a":"[redacted:payment_card]","b":"[redacted:payment_card]","c":"[redacted:payment_card]","d":"[redacted:payment_card]","e":"[redacted:payment_card]","f":4111111111111112.0,"g":0.4111111111111111}`,
			"/d/a /d/b /d/c /d/d /d/e"},
		"escaped path": {`{"a/b~c":{"pwd":"x"}}`, `{"a/b~c":{"pwd":"[redacted:credential_field]"}}`, "/d/a~1b~0c/pwd"},
	} {
		t.Run(name, func(t *testing.T) {
			fields := []string{"tool_input.body", "$.tool_input.n", "items[*].p", "a.b.c", "none.such", "/tool_input/body", ""}
			got, hits, err := Document(document(t, tc.in), "/d", fields, Config{})
			if err != nil {
				t.Fatal(err)
			}
			if tc.want == "" {
				tc.want = tc.in
			}
			if diff := cmp.Diff(document(t, tc.want), got); diff != "" {
				t.Error(diff)
			}
			var paths []string
			for _, h := range hits {
				paths = append(paths, h.Path)
			}
			if got := strings.Join(paths, " "); got != tc.hits {
				t.Errorf("paths %s, want %s", got, tc.hits)
			}
		})
	}
}

func TestTooMuchWithholds(t *testing.T) {
	many := map[string]any{}
	for i := range MaxHits + 1 {
		many["k"+strings.Repeat("x", i)] = github
	}
	wide := map[string]any{"a": []any{}}
	for range 200_000 {
		wide["a"] = append(wide["a"].([]any), map[string]any{})
	}
	long := strings.Repeat("a name ", MaxPathBytes/7/20+1)
	mails := strings.Repeat(" dana@other.example", 20)
	for name, tc := range map[string]struct {
		doc    any
		fields []string
	}{
		"hits":   {many, nil},
		"paths":  {map[string]any{long: mails}, nil},
		"names":  {map[string]any{long + mails: 1}, nil},
		"fields": {map[string]any{}, make([]string, maxFields+1)},
		"visits": {wide, []string{"a.*.*", "a.*.*.*"}},
	} {
		if _, _, err := Document(tc.doc, "", tc.fields, Config{}); !errors.Is(err, ErrTooMuch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := strings.Repeat(awsID+" ", maxSpans+1)
	if got, _ := maskText(text); got != Placeholder(TooMany) {
		t.Errorf("a text full of secrets became %.80q", got)
	}
}

// Only what placeholderFor writes is a placeholder: any other text in a password's field is a password.
func TestPlaceholders(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 2)
	for text, want := range map[string]bool{
		"email": true, "email:*1": true, "email:*aB12": true, "email:h-" + digest: true, "email:t-" + digest: true, "email:s-" + digest: true,
		"": false, "mail": false, "email:": false, "email:*": false, "email:*aB123": false, "email:*a-1": false, "email:h-" + digest[1:]: false,
		"email:x-" + digest: false, "email:h-" + strings.ToUpper(digest): false, "email:hunter2Secret99": false, "email:hunter2Secret99hunter2Secret99abcd": false,
	} {
		text = "[redacted:" + text + "]"
		if IsPlaceholder(text) != want {
			t.Errorf("%s: %v", text, !want)
		}
		_, hits, err := Document(map[string]any{"password": text}, "", nil, Config{})
		if err != nil || (len(hits) == 0) != want {
			t.Errorf("a password %s: %v %v", text, hits, err)
		}
	}
}

// TestUpstreamHasNoSecrets runs over every upstream example: what is redacted
// there must be what the table below says, and nothing else.
func TestUpstreamHasNoSecrets(t *testing.T) {
	root := os.Getenv("COUNTERSIGN_SHARED")
	if root == "" {
		root = "../../../../shared"
	}
	files, _ := filepath.Glob(filepath.Join(root, "upstream/*/*/*.json"))
	more, _ := filepath.Glob(filepath.Join(root, "upstream/*/*.json"))
	deep, _ := filepath.Glob(filepath.Join(root, "upstream/*/*/*/*.json"))
	files = append(append(files, more...), deep...)
	if len(files) == 0 {
		t.Skip("no upstream examples at " + root + " (set COUNTERSIGN_SHARED)")
	}
	for _, f := range files {
		if strings.Contains(f, "schema") || strings.Contains(f, "test-vectors") {
			continue // no events
		}
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if json.Unmarshal(raw, &v) != nil {
			continue
		}
		_, hits, err := Document(v, "", nil, Config{})
		if err != nil {
			t.Errorf("%s: %v", f, err)
		}
		for _, h := range hits {
			if h.Detector != ReplyToken && h.Detector != Email {
				t.Errorf("%s: %s at %s: %.60q %v", f, h.Detector, h.Path, h.Text, h.JSON)
			}
		}
	}
}

func TestLongestName(t *testing.T) {
	longest := 0
	for _, n := range ownNameRules {
		longest = max(longest, len(n.text))
	}
	if longest != longestName {
		t.Errorf("the longest name has %d letters, longestName is %d", longest, longestName)
	}
}

func TestNames(t *testing.T) {
	for s, want := range map[string]strength{
		"password": strongName, "Pass-Word": strongName, "userPassword": strongName, "DB_PASSWORD_": strongName, "x-api-key": strongName, "AWS_SECRET_ACCESS_KEY": strongName,
		"Proxy-Authorization": strongName, "my_authorization": noStrength, "authorization_state": noStrength, "secret_name": noStrength, "tokens": noStrength, "reply_token": noStrength,
		"a_very_long_prefix_of_a_name_that_ends_with_refresh_token": strongName, "a_very_long_prefix_otp": noStrength, "otp": strongName, "next_page_token": noStrength,
		"key": weakName, "row_key": weakName, "public_key": noStrength, "monkey": weakName, "": noStrength, "_": noStrength, "d": noStrength, "пароль": strongName, "user_pass": strongName, "X-Db-Pass": strongName, "first_pass": noStrength, "bypass": noStrength, "пропуск": noStrength,
	} {
		if got := lookupName(s).strength; got != want {
			t.Errorf("%q: %d, want %d", s, got, want)
		}
	}
}
