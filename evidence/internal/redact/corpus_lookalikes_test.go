package redact

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/redact/checkdigits"
)

// alike makes a kind of what looks like a secret or like personal data and is
// neither.
func alike(class, name string, value func(d dice) string, in ...string) kind {
	return kind{name: name, class: class, value: value, places: in}
}

func uuidOf(d dice) string {
	return d.from(hexes, 8) + "-" + d.from(hexes, 4) + "-4" + d.from(hexes, 3) + "-" + d.one("8", "9", "a", "b") + d.from(hexes, 3) + "-" + d.from(hexes, 12)
}

func sentence(d dice) string {
	return "the " + d.word() + " of the " + d.word() + " near a " + d.word()
}

// fails draws digits until the check does not hold.
func fails(d dice, n int, lead string, check func([]byte) bool) string {
	return lead + until(d, n-len(lead), func(v []byte) bool { return !check(append([]byte(lead), v...)) })
}

var idPlaces = []string{"%s", "id=%s", `{"id":"%s","n":1}`, "request %s done", "/v1/items/%s", "ref: %s", "key=%s", "cache_key=%s"}

var lookalikes = []kind{
	alike("secret", "uuid", uuidOf, append([]string{"session=%s", "idempotency_key=%s"}, idPlaces...)...),
	alike("secret", "git_commit", func(d dice) string { return d.token(hexes, 40) }, "%s", "commit %s", "image@%s", "checkout %s", "key=%s"),
	alike("secret", "sha256", func(d dice) string { return "sha256:" + d.token(hexes, 64) }, idPlaces...),
	alike("secret", "hmac_digest", func(d dice) string { return "hmac-sha256:" + d.token(hexes, 64) }, idPlaces...),
	alike("secret", "event_id", func(d dice) string { return d.one("evt_", "call_", "sess_", "sub_", "out_") + d.token(hexes, 16) }, idPlaces...),
	alike("secret", "traceparent", func(d dice) string { return "00-" + d.token(hexes, 32) + "-" + d.token(hexes, 16) + "-01" }, "traceparent: %s", `"traceparent":"%s"`, "%s"),
	alike("secret", "npm_integrity", func(d dice) string { return "sha512-" + d.from(alnums+"+/", 86) + "==" }, `"integrity": "%s"`, "integrity %s"),
	alike("secret", "go_sum", func(d dice) string { return "h1:" + d.from(alnums+"+/", 43) + "=" }, "example.invalid/mod v1.2.3 %s", "%s"),
	alike("secret", "base64_picture", func(d dice) string { return "iVBORw0KGgo" + d.from(alnums+"+/", 120) }, `<img src="data:image/png;base64,%s">`, "%s", `{"image":"%s"}`),
	alike("secret", "base64_of_text", func(d dice) string {
		return base64.StdEncoding.EncodeToString([]byte(sentence(d) + ", " + sentence(d)))
	}, "%s", `{"data":"%s"}`),
	alike("secret", "public_key", func(d dice) string { return "AAAAC3NzaC1lZDI1NTE5AAAAI" + d.from(alnums+"+/", 43) }, "ssh-ed25519 %s user", "public_key=%s"),
	alike("secret", "certificate", func(d dice) string {
		return "-----BEGIN CERTIFICATE-----\n" + d.from(alnums+"+/", 64) + "\n" + d.from(alnums+"+/", 64) + "\n-----END CERTIFICATE-----"
	}),
	alike("secret", "detached_jws", func(d dice) string {
		return base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"`+d.from(hexes, 16)+`"}`)) + ".." + d.token(urlSafe, 86)
	}, "%s", "signature: %s"),
	alike("secret", "prose_password", func(d dice) string {
		return d.one("The password for the %s was changed.", "A token is needed for the %s.", "Please reset the password of the %s.", "The secret of the %s is patience.", "Basic authentication of the %s is off.", "The bearer of the %s smiled.")
	}),
	alike("secret", "prose_colon", func(d dice) string {
		return d.one("secret: ", "token: ", "cookie: ", "credentials: ", "authorization: ") + d.word()
	}),
	alike("secret", "placeholder", func(d dice) string {
		return d.one("password=", "api_key: ", "token=", "secret: ", "--password=") + d.one("${DB_PASSWORD}", "{{ vault.secret }}", "null", "none", "****", "undefined", "<redacted>", "[redacted]", "true", "false", "********")
	}),
	alike("secret", "code_names", func(d dice) string {
		return d.one("func validatePassword(p string) error", "if token == nil { return }", "const tokenType = 3", "type SecretStore interface{}", "len(password) < 8", "passwordField.focus()", "max_tokens=4096", "next_page_token=CAUQAA",
			"tokens: 128", "token_count: 77", "keyboard=us", "monkey: see", "primary_key=id", "foreign_key: orders.id", "sort_key=created_at", "public_key_path=/etc/x.pub", "password_policy: strict", "secretary: Ms. Roe", "tokenizer=bpe")
	}),
	alike("secret", "hyphenated", func(d dice) string {
		return d.one("sk-learn-", "task-", "risk-", "disk-", "ask-", "sk-") + d.word() + "-" + d.word() + "-" + d.word() + "-" + d.word()
	}),
	alike("secret", "snake_names", func(d dice) string {
		return d.one("npm_config_", "hf_model_", "sk_test_case_", "ghp_like_", "glpat_x_", "key_", "pul_") + d.word() + "_" + d.word() + "_" + d.word() + "_of_" + d.word()
	}),
	alike("secret", "model_names", func(d dice) string {
		return d.one("gpt-4o-mini-2024-07-18", "claude-3-5-sonnet-20241022", "llama-3.1-70b-instruct", "text-embedding-3-large", "mistral-large-2407") + " " + d.word()
	}),
	alike("secret", "short_ids", func(d dice) string {
		return "AKIA" + d.from(uppers, 6) + " " + "ghp_" + d.from(alnums, 8) + " eyJ" + d.from(alnums, 6)
	}),
	alike("secret", "urls", func(d dice) string {
		return "https://" + d.word() + ".example.invalid:8443/" + d.word() + "/" + d.from(hexes, 8) + "?page=" + d.from(tens, 2) + "&sort=" + d.word() + "#" + d.word()
	}),
	alike("secret", "paths", func(d dice) string {
		return "/var/lib/" + d.word() + "/" + d.word() + "/" + d.from(hexes, 12) + "/" + d.word() + ".tar.gz"
	}),
	alike("secret", "css_and_colours", func(d dice) string {
		return fmt.Sprintf(".%s { color: #%s; margin: %spx } .sk-circle { }", d.word(), d.from(hexes, 6), d.from(tens, 2))
	}),
	alike("secret", "escapes", func(d dice) string {
		return d.one("/search?q="+d.word()+"%20"+d.word()+"%2C", "100% of "+d.word(), `{\"name\":\"`+d.word()+`\"}`, "caf\\u00e9 "+d.word(), "a &amp; "+d.word())
	}),

	alike("personal", "not_luhn", func(d dice) string { return fails(d, 16, "4", checkdigits.IsCard) }, idPlaces...),
	alike("personal", "not_luhn_grouped", func(d dice) string { return grouped(fails(d, 16, "4", checkdigits.IsCard), "4-4-4-4", " ") }, "%s", "ref %s"),
	alike("personal", "order_number", func(d dice) string { return d.one("1", "7", "8", "9") + d.from(tens, 15) }, "order %s", "invoice no. %s", "id=%s"),
	alike("personal", "epoch", func(d dice) string { return "17" + d.from(tens, d.IntN(3)*3+8) }, "at %s", `{"ts":%s}`, "%s"),
	alike("personal", "timestamp", func(d dice) string {
		return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02d.%sZ", 1+d.IntN(12), 1+d.IntN(28), d.IntN(24), d.IntN(60), d.IntN(60), d.from(tens, 9))
	}, "%s", "%s INFO ready", "from %s to 2027-01-01"),
	alike("personal", "zone", func(d dice) string {
		return fmt.Sprintf("2026-11-20T06:42:%02d%s%02d:00", d.IntN(60), d.one("+", "-"), d.IntN(13))
	}),
	alike("personal", "not_an_iban", func(d dice) string {
		for {
			v := d.one("DE", "FR", "GB", "NL", "XX", "QQ") + d.from(tens, 20)
			if ibanEnd(v, 0) == 0 {
				return v
			}
		}
	}, idPlaces[:4]...),
	alike("personal", "part_number", func(d dice) string {
		return d.from(uppers, 2) + d.one("-", "", "/") + d.from(tens, 5+d.IntN(4))
	}, "part %s", "%s", "SKU %s"),
	alike("personal", "version", func(d dice) string {
		return fmt.Sprintf("%s@%d.%d.%d%s", d.word(), d.IntN(20), d.IntN(20), d.IntN(20), d.one("", "-rc.1", "+build.7", "+20261120064200"))
	}),
	alike("personal", "at_signs", func(d dice) string {
		return d.one("@"+d.word(), d.word()+"@2x.png", "git@github.com:"+d.word()+"/"+d.word()+".git", "@scope/"+d.word(), d.word()+"@localhost", d.word()+"@sha256", "ssh://git@"+d.word()+".example.invalid/x", "user@host:~/"+d.word(), d.word()+" @ "+d.word()+".com")
	}),
	alike("personal", "ip_address", func(d dice) string {
		return fmt.Sprintf("%d.%d.%d.%d", 1+d.IntN(223), d.IntN(256), d.IntN(256), d.IntN(256))
	}, "%s", "%s:8080", "from %s", "%s/24"),
	alike("personal", "decimal", func(d dice) string { return d.from("123456789", 1+d.IntN(3)) + "." + d.from(tens, 4+d.IntN(12)) }, "%s", "x=%s", "[%s, 1.5]", "lat %s"),
	alike("personal", "amount", func(d dice) string {
		return d.from("123456789", 1) + "," + d.from(tens, 3) + "," + d.from(tens, 3) + "." + d.from(tens, 2)
	}, "EUR %s", "total %s", "%s"),
	alike("personal", "date", func(d dice) string {
		return d.one(fmt.Sprintf("%02d.%02d.2026", 1+d.IntN(28), 1+d.IntN(12)), fmt.Sprintf("2026/%02d/%02d", 1+d.IntN(12), 1+d.IntN(28)), fmt.Sprintf("%02d-%02d-2026", 1+d.IntN(28), 1+d.IntN(12)), fmt.Sprintf("2026%02d%02d", 1+d.IntN(12), 1+d.IntN(28)))
	}, "on %s", "%s", "due %s."),
	alike("personal", "wrong_check", func(d dice) string {
		return d.one(grouped(fails(d, 11, "", checkdigits.BrazilianCPF), "3-3-3-2", "..-"), grouped(fails(d, 13, "756", checkdigits.SwissAHV), "3-4-4-2", "."), fails(d, 15, "1", checkdigits.FrenchNIR), fails(d, 18, "1", checkdigits.ChineseResident))
	}, "%s", "no %s"),
	alike("personal", "isbn", func(d dice) string {
		return "978-" + d.from(tens, 1) + "-" + d.from(tens, 2) + "-" + d.from(tens, 6) + "-" + d.from(tens, 1)
	}, "ISBN %s", "%s"),
	alike("personal", "ranges", func(d dice) string {
		return fmt.Sprintf("lines %d-%d, pages %d-%d", 100+d.IntN(900), 1000+d.IntN(9000), d.IntN(90), 100+d.IntN(900))
	}),
	alike("personal", "uuid_numbers", func(d dice) string {
		return d.from(tens, 8) + "-" + d.from(tens, 4) + "-4" + d.from(tens, 3) + "-8" + d.from(tens, 3) + "-" + d.from(tens, 12)
	}, idPlaces[:5]...),
	alike("personal", "hex_numbers", func(d dice) string { return "0x" + d.from(hexes, 16) }, "%s", "at %s"),
	alike("personal", "matrix", func(d dice) string {
		return strings.TrimSpace(strings.Repeat(d.from(tens, 2)+" "+d.from(tens, 3)+" ", 6))
	}),

	alike("secret", "key_words", func(d dice) string {
		key := d.one("passes", "passenger", "compass", "bypass", "first_pass", "secretary", "secret_name", "password_policy", "password_length", "passwordless", "token_type", "tokens", "tokenizer", "public_key_hash", "cache_key", "next_page_token_2", "passport_office")
		return strings.NewReplacer("KEY", key, "VALUE", d.word()+d.from(tens, 2)).Replace(d.one(`{"KEY":"VALUE"}`, "KEY: VALUE", "KEY=VALUE", "KEY\t=\tVALUE", `{"KEY":["VALUE"]}`, "KEY:\n  - VALUE\n", "KEY: [VALUE, x]"))
	}),
	alike("secret", "pass_results", func(d dice) string {
		return d.one("pass: ", "pass=", "pass\t=\t", "PASS: ", "pw: ") + d.one("true", "false", "ok", "yes", "no", "all", d.from(tens, 3), d.word(), d.from(tens, 2)+"/"+d.from(tens, 2), "2026-11-"+d.from(tens, 2), "/tmp/"+d.word())
	}),
	alike("secret", "nested_settings", func(d dice) string {
		return strings.ReplaceAll(d.one(`{"password":{"type":"string","minLength":8}}`, "secrets:\n  - WORD_password\n  - WORD.key\n", "secret:\n  secretName: WORD-tls\n", `{"secrets":{"count":3}}`,
			"password: { type: String, required: true }", "Choose a password:\n\n- at least 8 characters\n- no WORD\n", `{"password":["${WORD}","****"]}`, "password:\n  min_length: 12\n  policy: WORD\n", "secrets: 3 of the WORD"), "WORD", d.word())
	}),
	alike("secret", "tildes", func(d dice) string {
		return d.one("about ~1"+d.from(tens, 2)+" of "+d.word(), "/paths/~1v1~1"+d.word()+"/get", "#/"+d.word()+"/a~0b", "~"+d.word()+"/x~1", "HEAD~1 "+d.word())
	}),
}
