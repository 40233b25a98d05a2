// Package redact finds secrets and personal data in text and in decoded JSON, and replaces them
// in the evidence copy of an event. Document redacts a body, Strings and
// OneText redact headers and names, and CleanChecker finds the documents without anything to redact. The
// caller's Config, not this package, decides how a finding is treated.
//
// There are three kinds of findings: a value with a key that marks it as a credential, a part of
// a text that has the shape of a secret (table.go), and a field that the producer declared to be
// redacted. The package is deterministic and linear in its input: the same bytes give the same
// findings on every machine, and no input is more than some 30 times slower than clean text of
// the same length. Begin with Document in tree.go and scanText in scan.go.
package redact

import (
	"slices"
	"strings"
)

// Detectors that are not rows of the tables.
const (
	DeclaredField   = "declared_field"        // what the event's metadata.redaction.fields names
	CredentialField = "credential_field"      // the value (text, number, array or object) of a key or header that names a credential
	Assignment      = "credential_assignment" // password=… and the like in a text
	HighEntropy     = "high_entropy_value"    // a random-looking value of 20 bytes or more named …key or …auth
	EncodedData     = "encoded_data"          // base64 with a secret in it, in a text or as data_base64 of a CloudEvent
	InvalidUTF8     = "invalid_utf8"          // a header value that is not UTF-8
	TooMany         = "too_many"              // a text with more than 32 findings, or more near misses than are looked at; all headers, with more than 512 findings or 64 KiB of paths in them
	Withheld        = "withheld"              // the whole body, or all headers: redaction itself failed
	ReplyToken      = "aaep_reply_token"      // rpl_… in a text; in a field named reply_token it stays, as the protocol's correlation id
	PEM             = "private_key"           // -----BEGIN … PRIVATE KEY-----
	URLPassword     = "url_password"          // scheme://user:password@host
	Email           = "email"                 // e-mail addresses
	Phone           = "phone"                 // telephone numbers
	Card            = "payment_card"          // payment cards
	IBAN            = "iban"                  // accounts by IBAN
	NationalID      = "national_id"           // identity numbers of persons
	Address         = "postal_address"        // addresses, by the field's name
	BirthDate       = "date_of_birth"         // dates of birth, by the field's name
	PersonalField   = "personal_field"        // other personal data, by the field's name
	PrivateAccount  = "private_account_id"    // acct_…, customer_… in a text: ids of private accounts, which AANA does not keep
	PolicyField     = "policy_field"          // what a rule of the tenant's policy names
	BasicAuth       = "basic_auth"            // Basic and the base64 of user:password

	// Not found, but withheld by a retention class.
	RetentionSummary = "retention_summary_only" // what the retention class summary_only does not allow to be stored
	RetentionHashes  = "retention_hashes"       // what the class hashes does not allow
	RetentionNone    = "retention_none"         // what the class none does not allow

	maxSpans          = 32           // findings in one text before the whole text is redacted
	maxFields         = 256          // greatest number of declared fields
	maxVisits         = 1 << 18      // greatest number of steps to find declared fields
	minText           = 5            // no detector finds anything in fewer bytes
	placeholderPrefix = "[redacted:" // see Placeholder
	maxValueWindow    = 4096         // greatest length of a quoted value
	maxPEMWindow      = 64 << 10     // greatest length of a PEM block
	maxIdent          = 64           // how many bytes of an identifier are read
)

// Limits of the redactions of a body, and of those of all headers: what exceeds one of them is
// withheld whole. Each redaction has its path, and a path can be as long as the body.
const (
	MaxHits      = 512      // redactions
	MaxPathBytes = 64 << 10 // bytes of their paths together
)

// ExceedsLimits reports whether hits are more than a body or headers may have.
func ExceedsLimits(hits []Hit) bool {
	size := 0
	for i := range hits {
		size += len(hits[i].Path)
	}
	return len(hits) > MaxHits || size > MaxPathBytes
}

// Placeholder is the text that replaces a finding of a detector in the evidence.
func Placeholder(detector string) string { return placeholderPrefix + detector + "]" }

// IsPlaceholder reports whether s is exactly a placeholder of a known detector, from this
// redaction or an earlier one.
func IsPlaceholder(s string) bool {
	body, ok := strings.CutPrefix(s, placeholderPrefix)
	return ok && len(body) > 1 && body[len(body)-1] == ']' && isPlaceholderBody(body[:len(body)-1])
}

// isPlaceholderBody reports whether s is the text between a placeholder's brackets: a detector
// and, optionally, last characters or a digest (see placeholderFor).
func isPlaceholderBody(s string) bool {
	name, rest, more := strings.Cut(s, ":")
	switch {
	case !knownDetectors[name]:
		return false
	case !more:
		return true
	case strings.HasPrefix(rest, "*"):
		last := rest[1:]
		return last != "" && len(last) <= MaxLast && runEnd(last, 0, alnum) == len(last)
	}
	return len(rest) == len("h-")+32 && strings.IndexByte("hts", rest[0]) >= 0 && rest[1] == '-' && strings.Trim(rest[2:], "0123456789abcdef") == ""
}

// knownDetectors are the names of all detectors.
var knownDetectors = map[string]bool{}

// The rules refer to placeholders, so an initialiser of knownDetectors would be a cycle.
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

// Releasable reports whether a policy may keep a detector's findings, or a part of them: personal
// data, and guesses by randomness. Credentials, what a protocol excludes from storage, and what
// a producer declared must not be kept.
func Releasable(detector string) bool { return releasable[detector] }

var releasable = map[string]bool{
	Email: true, Phone: true, Card: true, IBAN: true, NationalID: true, Address: true, BirthDate: true, PersonalField: true,
	HighEntropy: true, PolicyField: true,
}

// PersonalDetectors lists the detectors of personal data.
func PersonalDetectors() []string {
	return []string{Email, Phone, Card, IBAN, NationalID, Address, BirthDate, PersonalField}
}

// ClassDetectors lists the names of the retention classes in redactions. No scan finds them, and
// no redaction policy can name them.
func ClassDetectors() []string { return []string{RetentionSummary, RetentionHashes, RetentionNone} }

// Detectors lists the names of all detectors except ClassDetectors.
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
