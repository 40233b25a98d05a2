package token

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A record with a Proof is a mapping: it lets in a caller that another authority vouches for, as the
// record's user and role and with nothing more. Its Hash is that of the subject, so no bearer token
// can belong to it. The subject itself is not stored: a gateway reads the records, and needs no names.

// Proofs of a subject.
const (
	ProofCertificate = "certificate"
	ProofOIDC        = "oidc"
)

const (
	certificatePrefix = ProofCertificate + ":"
	oidcPrefix        = ProofOIDC + ":"
	maxSubject        = 1024 // bytes
)

// ProofOf says what proves a subject, and reports a subject that cannot be mapped.
func ProofOf(subject string) (string, error) {
	if err := checkSubject(subject); err != nil {
		return "", err
	}
	proof, _, _ := strings.Cut(subject, ":")
	return proof, nil
}

// ErrSubject reports a subject that cannot be mapped.
var ErrSubject = errors.New("token: the subject cannot be mapped")

// CertificateNamed is the subject of a client certificate with a distinguished name, written as in RFC
// 2253: CN=web1,O=Acme.
func CertificateNamed(name string) string { return certificatePrefix + name }

// CertificateSubject is the subject of a client certificate, from the encoded name in it. Every
// attribute counts, in its order: a name with two common names is another one than a name with the
// second alone.
func CertificateSubject(raw []byte) (string, error) {
	var name pkix.RDNSequence
	rest, err := asn1.Unmarshal(raw, &name)
	if err != nil || len(rest) > 0 {
		return "", fmt.Errorf("%w: the certificate's name cannot be read", ErrSubject)
	}
	for _, part := range name {
		for _, attribute := range part {
			if _, isText := attribute.Value.(string); !isText {
				return "", fmt.Errorf("%w: the certificate's name has a part that is no text", ErrSubject)
			}
		}
	}
	s := CertificateNamed(name.String())
	return s, checkSubject(s)
}

// OIDCSubject is the subject of a JWT: its issuer, a URL, and the claim sub.
func OIDCSubject(issuer, sub string) (string, error) {
	if issuer == "" || sub == "" || strings.ContainsFunc(issuer, unicode.IsSpace) {
		return "", fmt.Errorf("%w: a JWT needs an issuer without spaces, and a subject", ErrSubject)
	}
	s := oidcPrefix + issuer + " " + sub
	return s, checkSubject(s)
}

func checkSubject(s string) error {
	rest, isCertificate := strings.CutPrefix(s, certificatePrefix)
	if !isCertificate {
		var isOIDC bool
		if rest, isOIDC = strings.CutPrefix(s, oidcPrefix); !isOIDC {
			return fmt.Errorf("%w: it begins with neither %s nor %s", ErrSubject, certificatePrefix, oidcPrefix)
		}
	}
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	if rest == "" || len(s) > maxSubject || !utf8.ValidString(s) || strings.ContainsFunc(rest, hidden) {
		return fmt.Errorf("%w: it must be 1 to %d bytes of printable text", ErrSubject, maxSubject)
	}
	return nil
}

// FindSubject returns the caller with a subject that was proved. ok is false unless exactly one valid
// record of this tenant has the subject: with two it is unknown which one says what the caller may do.
func (s *Set) FindSubject(subject string, now time.Time) (r Record, id string, ok bool) {
	if s == nil || checkSubject(subject) != nil {
		return Record{}, "", false
	}
	for _, candidate := range s.bySubject[Hash(subject)] {
		held := s.byID[candidate]
		switch {
		case !held.IsValid(now):
		case ok:
			return Record{}, "", false
		default:
			r, id, ok = held, candidate, true
		}
	}
	return r, id, ok
}
