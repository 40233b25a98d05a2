package build

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// transportHeaders are the headers that steer the broker while it stores a message and carry
// no information afterwards; records leave them out. The list has whole names and no
// prefixes, so that no other header can be hidden under a prefix.
var transportHeaders = map[string]bool{
	"Nats-Expected-Stream":                        true,
	"Nats-Expected-Last-Sequence":                 true,
	"Nats-Expected-Last-Msg-Id":                   true,
	"Nats-Expected-Last-Subject-Sequence":         true,
	"Nats-Expected-Last-Subject-Sequence-Subject": true,
	"Nats-Batch-Id":                               true,
	"Nats-Batch-Sequence":                         true,
	"Nats-Batch-Commit":                           true,
}

// isRecordSignature reports whether a text has the form of the signature on a decision: a
// detached JWS, header..signature in base64url, followed by ~number~number~proof if it
// covers several records.
func isRecordSignature(s string) bool {
	jws, share, several := strings.Cut(s, "~")
	header, signature, dots := strings.Cut(jws, "..")
	if !dots || !consistsOf(header, isBase64URL) || !consistsOf(signature, isBase64URL) {
		return false
	}
	if !several {
		return true
	}
	first, rest, two := strings.Cut(share, "~")
	second, proof, three := strings.Cut(rest, "~")
	return two && three && consistsOf(first, isDigit) && consistsOf(second, isDigit) && consistsOf(proof, isBase64URL)
}

// consistsOf reports whether s is not empty and all its bytes are of one kind.
func consistsOf(s string, kind func(byte) bool) bool {
	for i := range len(s) {
		if !kind(s[i]) {
			return false
		}
	}
	return s != ""
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isBase64URL(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_'
}

// isSignatureHeader reports whether a header is the signature on a decision or an approval.
// Such a header is never redacted: it is random text in which a detector sometimes sees
// a token, and one changed letter would make a genuine decision look forged.
func isSignatureHeader(kind, name string, values []string) bool {
	return (kind == evidence.KindDecision || kind == evidence.KindApproval) && name == events.HeaderSignature && len(values) == 1 && isRecordSignature(values[0])
}

// redactHeaders returns those of the headers that a record keeps, redacted. config returns the redaction of
// one header. If there are more findings than a record may carry, it withholds all headers with
// one redaction.
func (r *recordRedactor) redactHeaders(in map[string][]string, config func(header string) redact.Config) (map[string][]string, []redact.Hit) {
	out := make(map[string][]string, len(in))
	var hits []redact.Hit
	var unclean []string
	for raw, values := range in {
		switch {
		case transportHeaders[raw]:
		case isSignatureHeader(r.scope.Kind, raw, values), r.isCleanHeader(raw, values):
			out[raw] = slices.Clip(values)
		default:
			unclean = append(unclean, raw)
		}
	}
	slices.Sort(unclean)
	for _, raw := range unclean {
		c := config(raw)
		name := headerName(raw)
		path := "/headers/" + strictjson.EscapePointer(name)
		values := slices.Clone(in[raw])
		if shown, odd := redact.OneText(name, path, c); len(odd) > 0 { // the name itself holds a secret
			if shown == "" { // dropped
				for _, h := range odd {
					shown += redact.Placeholder(h.Detector)
				}
			}
			for name = shown; out[name] != nil; {
				name += "_"
			}
			path = "/headers/" + strictjson.EscapePointer(name)
			for i := range odd {
				odd[i].Path = path
			}
			hits = append(hits, odd...)
		}
		hits = append(hits, redact.Strings(values, raw, path, c)...)
		out[name] = append(out[name], values...)
		if redact.ExceedsLimits(hits) {
			return withheldHeaders(in, redact.TooMany)
		}
	}
	return out, hits
}

// withheldHeaders withholds all headers with one redaction.
func withheldHeaders(in map[string][]string, detector string) (map[string][]string, []redact.Hit) {
	return map[string][]string{}, []redact.Hit{{Path: "/headers", Detector: detector, Text: flattenHeaders(in)}}
}

// headerName encodes a header's name. An HTTP token that does not begin with ~ stays as it
// is; any other name becomes ~ and its unpadded base64url.
func headerName(raw string) string {
	token := raw != "" && raw[0] != '~'
	for i := 0; token && i < len(raw); i++ {
		c := raw[i]
		token = c > ' ' && c < 0x7f && strings.IndexByte("\"(),/:;<=>?@[\\]{}", c) < 0
	}
	if token {
		return raw
	}
	return "~" + base64.RawURLEncoding.EncodeToString([]byte(raw))
}

// flattenHeaders encodes all headers as one text, for the commitment to what was withheld:
// name and values in base64url, one header a line, sorted by name.
func flattenHeaders(in map[string][]string) string {
	var b strings.Builder
	for _, raw := range slices.Sorted(maps.Keys(in)) {
		b.WriteString(base64.RawURLEncoding.EncodeToString([]byte(raw)))
		for _, v := range in[raw] {
			b.WriteString(" " + base64.RawURLEncoding.EncodeToString([]byte(v)))
		}
		b.WriteString("\n")
	}
	return b.String()
}
