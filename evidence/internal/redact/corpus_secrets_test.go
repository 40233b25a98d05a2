package redact

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
)

// plainKey makes a kind of an issuer's prefix and n characters of an alphabet.
func plainKey(name, prefix, alphabet string, n int) kind {
	return kind{name: name, class: "secret", places: places, value: func(d dice) string { return prefix + d.token(alphabet, n) }}
}

// named makes a kind that a name in front of it gives away.
func named(name string, value func(d dice) string, in ...string) kind {
	return kind{name: name, class: "secret", places: in, value: value}
}

func someToken(n int) func(d dice) string {
	return func(d dice) string { return d.token(alnums, n) }
}

// somePassword is one as people choose them.
func somePassword(d dice) string {
	return d.word() + d.one("", "-", "_", "!") + strings.ToUpper(d.word()[:1]) + d.word()[1:] + d.from(tens, 2) + d.one("!", "#", "", "$")
}

func jwtOf(d dice) string {
	part := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }
	return part(`{"alg":"HS256","typ":"JWT"}`) + "." + part(`{"sub":"`+d.from(tens, 10)+`","name":"`+d.word()+`","iat":`+d.from(tens, 10)+`}`) + "." + d.token(urlSafe, 43)
}

func pemOf(d dice) string {
	kind := d.one("", "RSA ", "EC ", "OPENSSH ", "ENCRYPTED ")
	var lines []string
	for range 3 + d.IntN(6) {
		lines = append(lines, d.from(alnums+"+/", 64))
	}
	return "-----BEGIN " + kind + "PRIVATE KEY-----\n" + strings.Join(lines, "\n") + "\n-----END " + kind + "PRIVATE KEY-----"
}

var secretKinds = []kind{
	plainKey("aws_access_key_id", "AKIA", uppers+"234567", 16), plainKey("aws_session_key_id", "ASIA", uppers+"234567", 16),
	plainKey("github_pat", "ghp_", alnums, 36), plainKey("github_oauth", "gho_", alnums, 36), plainKey("github_app", "ghs_", alnums, 36), plainKey("github_fine", "github_pat_", alnums+"_", 82),
	plainKey("gitlab_pat", "glpat-", urlSafe, 20), plainKey("gitlab_runner", "glrt-", urlSafe, 20),
	{name: "slack_bot", class: "secret", places: places, value: func(d dice) string {
		return "xoxb-" + d.from(tens, 12) + "-" + d.from(tens, 12) + "-" + d.token(alnums, 24)
	}},
	{name: "slack_webhook", class: "secret", places: places, value: func(d dice) string {
		return "https://hooks.slack.com/services/T" + d.from(uppers+tens, 10) + "/B" + d.from(uppers+tens, 10) + "/" + d.token(alnums, 24)
	}},
	plainKey("stripe_live", "sk_live_", alnums, 24), plainKey("stripe_restricted", "rk_live_", alnums, 24),
	{name: "openai", class: "secret", places: places, value: func(d dice) string {
		return "sk-proj-" + d.token(urlSafe, 74) + "T3BlbkFJ" + d.token(urlSafe, 74)
	}},
	{name: "openai_old", class: "secret", places: places, value: func(d dice) string { return "sk-" + d.token(alnums, 20) + "T3BlbkFJ" + d.token(alnums, 20) }},
	{name: "anthropic", class: "secret", places: places, value: func(d dice) string { return "sk-ant-api03-" + d.token(urlSafe, 93) + "AA" }},
	plainKey("google_api", "AIza", urlSafe, 35), plainKey("google_client", "GOCSPX-", urlSafe, 28),
	plainKey("npm", "npm_", alnums, 36), plainKey("huggingface", "hf_", alnums, 34), plainKey("digitalocean", "dop_v1_", hexes, 64), plainKey("pypi", "pypi-AgEIcHlwaS5vcmc", urlSafe, 60),
	plainKey("docker", "dckr_pat_", urlSafe, 27), plainKey("vault", "hvs.", urlSafe, 95),
	{name: "sendgrid", class: "secret", places: places, value: func(d dice) string { return "SG." + d.token(urlSafe, 22) + "." + d.token(urlSafe, 43) }},
	plainKey("shopify", "shpat_", hexes, 32), plainKey("linear", "lin_api_", alnums, 40), plainKey("grafana", "glsa_", alnums, 32), plainKey("postman", "PMAK-", hexes, 59),
	plainKey("databricks", "dapi", hexes, 32), plainKey("doppler", "dp.pt.", alnums, 43), plainKey("pulumi", "pul-", hexes, 40), plainKey("rubygems", "rubygems_", hexes, 48),
	plainKey("atlassian", "ATATT3", urlSafe, 186), plainKey("figma", "figd_", urlSafe, 40), plainKey("groq", "gsk_", alnums, 52), plainKey("planetscale", "pscale_tkn_", urlSafe, 43),
	plainKey("newrelic", "NRAK-", uppers+tens, 27), plainKey("twilio", "SK", hexes, 32), plainKey("square", "sq0atp-", urlSafe, 22), plainKey("brevo", "xkeysib-", hexes, 64),
	{name: "telegram", class: "secret", places: places, value: func(d dice) string {
		return d.one("1", "2", "5", "6") + d.from(tens, 9) + ":AA" + d.token(urlSafe, 33)
	}},
	{name: "mailchimp", class: "secret", places: places, value: func(d dice) string { return d.token(hexes, 32) + "-us" + d.one("1", "5", "14", "21") }},
	{name: "jwt", class: "secret", places: places, value: jwtOf},
	{name: "pem", class: "secret", places: []string{"%s", "key:\n%s\n", "-- %s --"}, value: pemOf},
	{name: "nats_seed", class: "secret", places: places, value: func(d dice) string { return "SU" + d.from(uppers+"234567", 56) }},
	named("bearer", someToken(40), "Authorization: Bearer %s", `"authorization": "Bearer %s"`, "curl -H 'Authorization: Bearer %s' u", "sent Bearer %s"),
	{name: "basic", class: "secret", places: []string{"Authorization: Basic %s", "proxy uses Basic %s now"}, value: func(d dice) string {
		return base64.StdEncoding.EncodeToString([]byte(d.word() + ":" + somePassword(d)))
	}},
	{name: "url_password", class: "secret", places: []string{"postgres://app:%s@db.internal:5432/app", "amqp://svc:%s@mq/", "DATABASE_URL=mysql://root:%s@127.0.0.1/x", "redis://:%s@cache:6379/0"},
		value: func(d dice) string { return url.PathEscape(somePassword(d)) }},
	named("password_env", somePassword, "DB_PASSWORD=%s", "export PGPASSWORD='%s'", `password = "%s"`, "passwd: %s", `{"user":"x","password":"%s"}`, `{\"password\":\"%s\"}`, "mysql -u root --password=%s -h db", "--password %s --host x"),
	named("connection_string", somePassword, "Server=tcp:db;Database=x;User Id=app;Password=%s;Encrypt=true;", "host=db user=app password=%s sslmode=require", "Endpoint=sb://x/;SharedAccessKeyName=r;Pwd=%s;"),
	named("api_key_named", func(d dice) string { return d.token(hexes, 32) }, "api_key=%s", "apiKey: \"%s\"", "X-API-Key: %s", `"api-key":"%s"`, "?api_key=%s&x=1", "API_KEY = '%s'"),
	named("secret_named", someToken(40), "client_secret=%s", "aws_secret_access_key = %s", `"secret": "%s"`, "SECRET_KEY='%s'", "signing_key: %s", "encryption-key=%s"),
	named("token_named", someToken(32), "access_token=%s", `"refresh_token":"%s"`, "token: %s", "auth_token = \"%s\"", "session_token=%s", "X-Vault-Token: %s"),
	named("high_entropy_named", func(d dice) string { return d.token(alnums+"+/", 40) }, "key=%s", "storage_key: %s", "row_auth=%s", "AppKey=\"%s\""),
	named("cookie", func(d dice) string { return "sid=" + d.token(alnums, 32) }, "Cookie: %s; theme=dark", "Set-Cookie: %s; Path=/; HttpOnly"),
	{name: "base64_of_secret", class: "secret", places: places, value: func(d dice) string {
		return base64.StdEncoding.EncodeToString([]byte("token ghp_" + d.token(alnums, 36) + " end"))
	}},
	{name: "percent_of_secret", class: "secret", places: places, value: func(d dice) string { return url.QueryEscape("password=" + somePassword(d) + "&x=1") }, part: func(v string) string {
		v, _, _ = strings.Cut(strings.TrimPrefix(v, "password%3D"), "%26")
		return v
	}},
	{name: "unicode_of_secret", class: "secret", places: []string{"%s", `{\"a\":\"%s\"}`}, value: func(d dice) string {
		v := "AKIA" + d.token(uppers+"234567", 16)
		return fmt.Sprintf(`\u%04x`, v[0]) + v[1:]
	}},
	// What no detector can know by looking.
	{name: "hard_password_in_prose", class: "secret", places: []string{"the password is %s", "log in as root with %s", "she said it was %s"}, value: somePassword, count: 30},
	{name: "hard_unnamed_hex", class: "secret", places: []string{"%s", "value %s"}, value: func(d dice) string { return d.token(hexes, 40) }, count: 30},
	{name: "hard_split", class: "secret", value: func(d dice) string { return "ghp_" + d.token(alnums, 12) + "\n" + d.token(alnums, 24) }, count: 20},
	{name: "hard_reversed", class: "secret", value: func(d dice) string { return "rev " + d.token(alnums, 36) + "_phg" }, count: 20},
}
