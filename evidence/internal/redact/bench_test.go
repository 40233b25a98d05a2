package redact

import (
	"strings"
	"testing"
)

// inputs are texts of one size: clean ones and hostile ones, which look like
// secrets again and again without being any.
func inputs() []struct{ name, text string } {
	const size = 64 << 10
	fill := func(part string) string { return strings.Repeat(part, size/len(part)+1)[:size] }
	return []struct{ name, text string }{
		{"clean_prose", fill("The agent looked at 17 pages of the report, chose two of them and wrote a short summary for the user. ")},
		{"clean_json", fill(`{"event_id":"evt_b8c4e9a2f5d1a8c4","n":12,"list":["a","b"],"summary":"transferring money"},`)},
		{"keywords", fill("AKIA sk- ghp_ xoxb- eyJ password token secret api_key bearer of basic x -----BEGIN x ://a key=1 auth:no ")},
		{"prefixes", fill("sk-sk-sk-sk-glpat-glpat-xoxb-")},
		{"jwt_heads", fill("eyJaaaaaaaaaaaaaa.eyJaaaaaaaaaaaaa ")},
		{"jwt_glued", fill("eyJ")},
		{"urls", fill("://a:b:")},
		{"assignments", fill("password=")},
		{"assignments_null", fill("password=null ")},
		{"open_quotes", fill(`password="\"password='`)},
		{"flags", fill("--password --token ")},
		{"cookies", fill("cookie: ")},
		{"names", fill("api_key_secret_token_password_")},
		{"separators", fill("=:=:d=y:")},
		{"pem_heads", fill("-----BEGIN -----BEGIN ")},
		{"bearer", fill("bearer bearer ")},
		{"weak", fill("key=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ")},
		{"underscores", fill("_l_p_e_")},
		{"backslashes", fill(`password=\\\\\\\\`)},
		{"caps", fill("SUSASOSN")},
		{"almost_random", fill(strings.Repeat("key=Ab1Cd2Ef3Gh4Ij5Kl6Mn", 160) + "! ")},
		{"digits_sk", fill("sk-aaaaaaaaaaaaaaa1-")},
	}
}

func BenchmarkScan(b *testing.B) {
	for _, in := range inputs() {
		b.Run(in.name, func(b *testing.B) {
			b.SetBytes(int64(len(in.text)))
			for b.Loop() {
				Scan(in.text)
			}
		})
	}
}
