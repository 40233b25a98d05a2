package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
)

// ErrNoKey says that the zero PrivateKey was asked to sign.
var ErrNoKey = errors.New("signing: the zero PrivateKey cannot sign")

// Sign gives the compact JWS of payload: base64url(header) "." base64url(payload)
// "." base64url(signature), none of them padded.
func (k PrivateKey) Sign(typ string, payload []byte) (string, error) {
	signed, _, err := k.signingInput(typ, payload)
	if err != nil {
		return "", err
	}
	return string(k.appendSignature(signed, signed)), nil
}

// SignDetached gives the compact JWS of payload without the payload in it
// (RFC 7515 appendix F).
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

// signingInput is what is signed (RFC 7515 section 5.1), with room behind it for the
// signature; head is the length of its header.
func (k PrivateKey) signingInput(typ string, payload []byte) (signed []byte, head int, err error) {
	if k.key == nil {
		return nil, 0, ErrNoKey
	}
	protected, known := k.headers[typ]
	if !known {
		text, err := json.Marshal(map[string]string{"alg": algorithm, "kid": k.ID, "typ": typ})
		if err != nil {
			return nil, 0, fmt.Errorf("signing: the type %.40q: %w", typ, err)
		}
		protected = encodeSegment(text)
	}
	signed = make([]byte, 0, len(protected)+1+base64.RawURLEncoding.EncodedLen(len(payload))+1+signatureText)
	signed = append(append(signed, protected...), '.')
	return base64.RawURLEncoding.AppendEncode(signed, payload), len(protected), nil
}

// appendSignature signs and puts the signature behind out.
func (k PrivateKey) appendSignature(signed, out []byte) []byte {
	signature := ed25519.Sign(k.key(), signed)
	return base64.RawURLEncoding.AppendEncode(append(out, '.'), signature)
}

const algorithm = "EdDSA"

// protectedHeader is the protected header that Sign writes: its members in this order and
// without a blank, as go-jose writes them.
func protectedHeader(kid, typ string) string {
	return `{"alg":"` + algorithm + `","kid":"` + kid + `","typ":"` + typ + `"}`
}

func encodeSegment(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
