// Package redact finds secrets in text and in decoded JSON, and takes them out
// of the evidence copy of an event. It is deterministic and linear in its
// input: the same bytes give the same findings on every machine, and no input
// is more than a small factor slower than clean text of the same length.
//
// There are three kinds of findings: a value whose key says that it is a
// credential, a part of a text that has the shape of a secret (table.go), and a
// field that the producer itself declared to be redacted.
package redact

import (
	"slices"
	"strings"
)

// Detectors that are not rows of the tables.
const (
	DeclaredField   = "declared_field"        // metadata.redaction.fields names it
	CredentialField = "credential_field"      // its key says that it is a credential
	Assignment      = "credential_assignment" // password=… in a text
	HighEntropy     = "high_entropy_value"    // key=<random> in a text or a field
	EncodedData     = "encoded_data"          // base64 data with a secret in it
	InvalidUTF8     = "invalid_utf8"          // a header value that no JSON string can hold
	TooMany         = "too_many"              // more findings than are told apart
	Withheld        = "withheld"              // the whole body: redaction itself failed
	ReplyToken      = "aaep_reply_token"      // rpl_… in a text
	PEM             = "private_key"           // -----BEGIN … PRIVATE KEY-----
	URLPassword     = "url_password"          // scheme://user:password@host
	Email           = "email"
	Phone           = "phone"
	Card            = "payment_card"
	IBAN            = "iban"
	NationalID      = "national_id"
	Address         = "postal_address"     // by field name
	BirthDate       = "date_of_birth"      // by field name
	PersonalField   = "personal_field"     // other personal data by field name
	NeverStore      = "never_store"        // what a protocol says must not be kept
	Protected       = "protected_field"    // AUMP: protected fields and private notes
	PrivateAccount  = "private_account_id" // AANA: acct_…, customer_… in a text
	PolicyField     = "policy_field"       // a policy names it
	BasicAuth       = "basic_auth"         // Basic <base64 of user:password>

	// Not found but withheld, by a retention class.
	RetentionSummary = "retention_summary_only"
	RetentionHashes  = "retention_hashes"
	RetentionNone    = "retention_none"

	maxSpans          = 32           // findings in one text before it is redacted as a whole
	maxFields         = 256          // declared fields that are looked at
	maxVisits         = 1 << 18      // steps taken to find declared fields
	minText           = 5            // no detector finds anything in less
	placeholderPrefix = "[redacted:" // see Placeholder
	maxValueWindow    = 4096         // how far a quoted value may reach
	maxPEMWindow      = 64 << 10     // how far a PEM block may reach
	maxIdent          = 64           // how much of an identifier is looked at
)

// MaxHits is how many redactions one record may carry; with more, the body is
// withheld as a whole.
const MaxHits = 512

// Placeholder is what stands in the evidence where a detector found something.
func Placeholder(detector string) string { return placeholderPrefix + detector + "]" }

// IsPlaceholder reports whether s is exactly what stands for something that was
// taken out, here or before: a mark of a known detector.
func IsPlaceholder(s string) bool {
	body, ok := strings.CutPrefix(s, placeholderPrefix)
	return ok && len(body) > 1 && body[len(body)-1] == ']' && isPlaceholderBody(body[:len(body)-1])
}

// isPlaceholderBody reports whether s is what a mark has between its brackets: a detector
// and, perhaps, last characters or a digest.
func isPlaceholderBody(s string) bool {
	name, rest, more := strings.Cut(s, ":")
	if !knownDetectors[name] || len(rest) > 2+32 || more && (len(rest) < 2 || !strings.ContainsAny(rest[:1], "*ht")) {
		return false
	}
	for i := 1; i < len(rest); i++ {
		if byteClass[rest[i]]&alnum == 0 && rest[i] != '-' {
			return false
		}
	}
	return true
}

// knownDetectors are the names of all detectors.
var knownDetectors = map[string]bool{}

// The rules refer to marks, so that the table cannot be made where it stands.
func init() {
	for _, name := range append(Detectors(), ClassDetectors()...) {
		knownDetectors[name] = true
	}
}

// Span is a part of a text, in bytes, and the detector that found it.
type Span struct {
	Start, End int
	Detector   string
}

// Text masks what is found in one text. The spans are in order, do not overlap,
// and lie in s; out is s with each replaced by its placeholder.
func Text(s string) (out string, spans []Span) {
	var w documentWalker
	out, _ = w.redactSpans(s)
	return out, Scan(s)
}

// Releasable reports whether a policy may keep what a detector finds, or a part
// of it: personal data, and guesses by randomness. Credentials, what a protocol
// says must never be stored, and what a producer declared may not be kept.
func Releasable(detector string) bool { return releasable[detector] }

var releasable = map[string]bool{
	Email: true, Phone: true, Card: true, IBAN: true, NationalID: true, Address: true, BirthDate: true, PersonalField: true,
	HighEntropy: true, PolicyField: true,
}

// PersonalDetectors lists the detectors of personal data.
func PersonalDetectors() []string {
	return []string{Email, Phone, Card, IBAN, NationalID, Address, BirthDate, PersonalField}
}

// ClassDetectors lists what stands for the retention classes. Nothing finds them,
// and no redaction policy can name them.
func ClassDetectors() []string { return []string{RetentionSummary, RetentionHashes, RetentionNone} }

// Detectors lists the name of every detector, for documentation and checks.
func Detectors() []string {
	list := []string{DeclaredField, CredentialField, Assignment, HighEntropy, EncodedData, InvalidUTF8, TooMany, Withheld,
		Email, Phone, Card, IBAN, NationalID, Address, BirthDate, PersonalField, NeverStore, Protected, PrivateAccount, PolicyField}
	for _, r := range rules {
		if !slices.Contains(list, r.detector) {
			list = append(list, r.detector)
		}
	}
	return list
}
