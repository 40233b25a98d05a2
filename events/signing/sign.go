package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
)

// ErrNoKey reports that the zero PrivateKey was used to sign.
var ErrNoKey = errors.New("signing: the zero PrivateKey cannot sign")

// Sign returns the compact JWS of payload: base64url(header) "." base64url(payload) "."
// base64url(signature), all unpadded.
func (k PrivateKey) Sign(typ string, payload []byte) (string, error) {
	signed, _, err := k.signingInput(typ, payload)
	if err != nil {
		return "", err
	}
	return string(k.appendSignature(signed, signed)), nil
}

// SignDetached returns the compact JWS of payload without the payload (RFC 7515 appendix F).
func (k PrivateKey) SignDetached(typ string, payload []byte) (string, error) {
	signed, head, err := k.signingInput(typ, payload)
	if err != nil {
		return "", err
	}
	out := make([]byte, 0, head+2+signatureText)
	return string(k.appendSignature(signed, append(append(out, signed[:head]...), '.'))), nil
}

// signatureText is the length of an encoded signature.
const signatureText = (ed25519.SignatureSize*8 + 5) / 6

// signingInput is the text that is signed (RFC 7515 section 5.1), with capacity for the
// signature; head is the length of its header.
func (k PrivateKey) signingInput(typ string, payload []byte) (signed []byte, head int, err error) {
	if k.key == nil {
		return nil, 0, ErrNoKey
	}
	protected, known := k.headers[typ]
	if !known {
		return nil, 0, fmt.Errorf("signing: %.40q is no type of signed objects", typ)
	}
	signed = make([]byte, 0, len(protected)+1+base64.RawURLEncoding.EncodedLen(len(payload))+1+signatureText)
	signed = append(append(signed, protected...), '.')
	return base64.RawURLEncoding.AppendEncode(signed, payload), len(protected), nil
}

// appendSignature signs and appends the signature to out.
func (k PrivateKey) appendSignature(signed, out []byte) []byte {
	signature := ed25519.Sign(k.key(), signed)
	return base64.RawURLEncoding.AppendEncode(append(out, '.'), signature)
}

// headerStart is the beginning of every protected header, before the key id.
const headerStart = `{"alg":"EdDSA","kid":"`

// protectedHeader is the only protected header for a key and a type. It has the members in the
// order of RFC 8785, and no blanks.
func protectedHeader(kid, typ string) string { return headerStart + kid + `","typ":"` + typ + `"}` }

func encodeSegment(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
