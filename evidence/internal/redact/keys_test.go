package redact

import (
	"encoding/json"
	"strings"
	"testing"
)

// keySpellings are keys that say that their value is a credential.
var keySpellings = []string{
	"password", "PASSWORD", "Password", "passwd2", "password1", "PASSWORD_02", "db.password.3", "userPassword", "password_hash", "PASSWORD_HASH", "passwordHash", "password-digest",
	"password_confirmation", "passwordConfirm", "api_key_2", "apiKeys", "API_KEYS", "private_keys", "client_secrets", "secretValue", "client_secret_plaintext", "token_hash", "access_token_b64",
	"DB_PASSWORD_PROD", "password_new", "passwordAgain", "STRIPE_SECRET_KEY_TEST", "GITHUB_TOKEN_RW", "SECRET_V2", "JWT_SECRET_OLD", "smtp_password_primary", "api-key-live",
	"authorization_header", "authHeader", "otp_code", "activationCode", "backup_codes", "securityAnswer", "passwords", "passphrases", "ｐａｓｓｗｏｒｄ", "ＰＡＳＳＷＯＲＤ", "ｐａｓｓ＿ｗｏｒｄ", "db_ｐａｓｓword", "𝐩𝐚𝐬𝐬𝐰𝐨𝐫𝐝", "pass\u200bword", "pass\u00adword", "ａｐｉ－ｋｅｙ", "ﾊﾟｽﾜｰﾄﾞ", "contrasen\u0303a",
}

// What a key says does not depend on how it is spelt, nor on whether it stands in
// decoded JSON or in a text.
func TestKeySpellings(t *testing.T) {
	const value = "Blue9horse"
	for _, key := range keySpellings {
		for _, text := range []string{`{"` + key + `":"` + value + `"}`, key + ": " + value, key + "=" + value, key + "\t=\t" + value, key + "\t:\t" + value,
			key + "              = '" + value + "'", key + ":\t\t\t" + value, key + "：" + value, key + "[]=" + value, key + "[0]=" + value, "user[" + key + "]=" + value} {
			if out, _ := maskText(text); strings.Contains(out, value) {
				t.Errorf("text %q became %q", text, out)
			}
		}
		for _, v := range []any{value, json.Number("12345"), []any{value}, map[string]any{"value": value}} {
			if strings.HasSuffix(strings.ToLower(key), "s") && v == json.Number("12345") {
				continue // a count
			}
			out, hits, err := Document(map[string]any{key: v}, "", nil, Config{})
			if text, _ := json.Marshal(out); err != nil || len(hits) != 1 || strings.Contains(string(text), value) {
				t.Errorf("decoded %q: %v became %s, %v", key, v, text, err)
			}
		}
	}
}

// Keys that look alike say nothing, whatever stands beside them.
func TestKeyLookalikes(t *testing.T) {
	for _, key := range []string{"passes", "passenger", "password_policy", "passwordLength", "PASSWORD_MIN_2", "secretary", "compass", "compass2", "tokens", "max_tokens", "token_type", "tokenizer",
		"secret_name", "public_key_hash", "publicKeyValue", "next_page_token_2", "cache_key_hash", "bypass", "surpass", "keyboard", "hash", "hex", "value2", "ｎａｍｅ", "passport_office", "public_key_prod", "cache_key_v2", "secret_version", "token_count_test", "contest", "first_pass", "partition_keys", "2", "_2"} {
		for _, text := range []string{`{"` + key + `":"Blue9horse"}`, key + ": Blue9horse", key + "=Blue9horse", key + "\t=\tBlue9horse", key + ": [Blue9horse]", key + ":\n  - Blue9horse\n"} {
			if out, spans := maskText(text); out != text {
				t.Errorf("text %q became %q: %v", text, out, spans)
			}
		}
		out, hits, err := Document(map[string]any{key: "Blue9horse"}, "", nil, Config{})
		if err != nil || len(hits) > 0 {
			t.Errorf("decoded %q became %v, %v", key, out, err)
		}
	}
}

// pass stands for a password where what stands beside it looks like one.
func TestPass(t *testing.T) {
	for _, value := range []string{"hunter2", "p@ssw0rd!", "s3cret", "Blue9horse", "correct-horse!battery", "12345a"} {
		for _, text := range []string{`{"pass":"` + value + `"}`, "pass=" + value, "pass: " + value, "PASS\t=\t" + value, "pw: '" + value + "'"} {
			if out, _ := maskText(text); strings.Contains(out, value) {
				t.Errorf("%q became %q", text, out)
			}
		}
		if out, hits, _ := Document(map[string]any{"pass": value}, "", nil, Config{}); len(hits) != 1 {
			t.Errorf("decoded %q became %v", value, out)
		}
	}
	for _, value := range []string{"true", "ok", "yes!", "all tests", "12", "20261120", "the 2nd time", "passed", "inline", "2026-11-20T06:42Z", "/tmp/out1", "step:2", "42/42"} {
		for _, text := range []string{`{"pass":"` + value + `"}`, "pass=" + value, "pass: " + value} {
			if out, spans := maskText(text); out != text {
				t.Errorf("%q became %q: %v", text, out, spans)
			}
		}
		if out, hits, _ := Document(map[string]any{"pass": value}, "", nil, Config{}); len(hits) > 0 {
			t.Errorf("decoded %q became %v", value, out)
		}
	}
}

// A value that is a list, an object or a block is taken in a text as under a key of
// decoded JSON.
func TestNestedValues(t *testing.T) {
	for name, text := range map[string]string{
		"list":                   `{"password":["Blue9horse"],"n":1}`,
		"object":                 `{"password":{"value":"Blue9horse"},"n":1}`,
		"two deep":               `{"password":{"old":[{"value":"Blue9horse"}]},"n":1}`,
		"second":                 `{"secrets":["", null, "Blue9horse"],"n":1}`,
		"blanks":                 "{\n  \"password\": {\n    \"value\" : \"Blue9horse\"\n  }\n}",
		"in a text of JSON":      `{\"password\":[\"Blue9horse\"],\"n\":1}`,
		"in two texts of JSON":   `{\\\"password\\\":{\\\"value\\\":\\\"Blue9horse\\\"}}`,
		"python":                 `{'password': ['Blue9horse'], 'n': 1}`,
		"equals sign":            `passwords = ["x", "Blue9horse"]`,
		"flow list":              "secrets: [Blue9horse, x]",
		"flow object":            "secret: {value: Blue9horse}",
		"brackets in a text":     `{"password":["]","Blue9horse"]}`,
		"quotes in a text":       `{"password":["\"]","Blue9horse"]}`,
		"printed by Go":          "{Name:x Password:[Blue9horse] N:1}",
		"never closed":           `{"password":["x","Blue9horse`,
		"far behind":             `{"password":["` + strings.Repeat("x", 5000) + `","Blue9horse"]}`,
		"inside of a count":      `{"tokens":{"password":["Blue9horse"]}}`,
		"inside of another":      "secrets: {count: 3, passwords: [horse, Blue9horse]}",
		"block list":             "secrets:\n  - Blue9horse\n  - x\nn: 1",
		"block list, no indent":  "secrets:\n- x\n- Blue9horse\nn: 1",
		"block list, quoted":     "secrets:\n  - 'Blue9horse'\n",
		"block list, indented":   "a:\n  passwords:\n    - x\n    - Blue9horse\n  n: 1",
		"block list, line ends":  "secrets:\r\n  - Blue9horse\r\nn: 1",
		"block object":           "password:\n  value: Blue9horse\nn: 1",
		"block object, quoted":   "password:\n  value: \"Blue9horse\"\nn: 1",
		"list of objects":        "secrets:\n  - value: Blue9horse\n",
		"block word":             "password:\n  Blue9horse\n",
		"block scalar":           "password: |\n  Blue9horse\nn: 1",
		"block scalar, stripped": "private_key: >-\n    x\n    Blue9horse\nn: 1",
	} {
		t.Run(name, func(t *testing.T) {
			out, spans := maskText(text)
			if strings.Contains(out, "Blue9horse") {
				t.Errorf("%q became %q", text, out)
			}
			if n := strings.LastIndexAny(text, "n"); strings.HasSuffix(text, "n: 1") && !strings.HasSuffix(out, text[n-1:]) || strings.HasSuffix(text, `"n":1}`) && !strings.HasSuffix(out, `"n":1}`) {
				t.Errorf("%q became %q: what stands behind it is gone", text, out)
			}
			if again, _ := maskText(out); again != out {
				t.Errorf("not stable: %q becomes %q (%v)", out, again, spans)
			}
		})
	}
}

func TestNestedLookalikes(t *testing.T) {
	for name, text := range map[string]string{
		"schema":           `{"properties":{"password":{"type":"string","minLength":8}}}`,
		"schema of code":   "password: { type: String, required: true }",
		"counts":           `{"secrets":{"count":3},"tokens":[1,2]}`,
		"names of secrets": "services:\n  web:\n    secrets:\n      - db_password\n      - tls.key\n",
		"secret volume":    "secret:\n  secretName: web-tls\n  items: 2\n",
		"placeholders":     `{"password":["${DB_PASSWORD}","****",null],"secrets":[]}`,
		"prose":            "Choose a password:\n\n- at least 8 characters\n- one digit\n",
		"prose, next line": "Enter the password:\nThen press 2x Enter.",
		"settings":         "password:\n  min_length: 12\n  policy: strict\n",
		"no value":         "secret:\nn: A1b2c3",
		"what is masked":   `{"password":[redacted:credential_assignment]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if out, spans := maskText(text); out != text {
				t.Errorf("%q became %q: %v", text, out, spans)
			}
		})
	}
}
