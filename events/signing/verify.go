package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"
)

// KeySet holds the published verification keys by key id. The nil set trusts no key.
type KeySet map[string]ed25519.PublicKey

// Verify verifies a compact JWS and returns its payload and key id. A header that Sign would not
// write, byte for byte, is ErrMalformed: each signature has one spelling.
func (ks KeySet) Verify(typ, token string) (payload []byte, kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	body, sig, cut := strings.Cut(rest, ".")
	kid, ours := readHeader(head, typ)
	payload, ok := decodeSegment(body)
	signature, fine := decodeSegment(sig)
	if !ours || !cut || !ok || !fine {
		return nil, "", ErrMalformed
	}
	if err := ks.verifySignature(kid, []byte(token[:len(head)+1+len(body)]), signature); err != nil {
		return nil, kid, err
	}
	return payload, kid, nil
}

// VerifyDetached is Verify for a detached compact JWS over payload. A nil payload is
// ErrMalformed, an empty one is not.
func (ks KeySet) VerifyDetached(typ, token string, payload []byte) (kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	sig, detached := strings.CutPrefix(rest, ".")
	kid, ours := readHeader(head, typ)
	signature, ok := decodeSegment(sig)
	if !ours || !detached || !ok || payload == nil {
		return "", ErrMalformed
	}
	signed := make([]byte, 0, len(head)+1+strictBase64.EncodedLen(len(payload)))
	signed = strictBase64.AppendEncode(append(append(signed, head...), '.'), payload)
	return kid, ks.verifySignature(kid, signed, signature)
}

// strictBase64 refuses spare bits at the end, which other base64 decoders accept. It skips line
// breaks like every decoder of the standard library; see decodeSegment.
var strictBase64 = base64.RawURLEncoding.Strict()

// decodeSegment accepts only the one canonical spelling.
func decodeSegment(part string) ([]byte, bool) {
	b, err := strictBase64.DecodeString(part)
	return b, err == nil && len(part) == strictBase64.EncodedLen(len(b))
}

// readHeader returns the key id of an encoded header. ok is false for a header that Sign does not
// write for the type.
func readHeader(head, typ string) (kid string, ok bool) {
	text, ok := decodeSegment(head)
	if !ok || len(text) < len(headerStart)+kidLength {
		return "", false
	}
	kid = string(text[len(headerStart):][:kidLength])
	return kid, string(text) == protectedHeader(kid, typ)
}

func (ks KeySet) verifySignature(kid string, signed, signature []byte) error {
	pub, known := ks[kid]
	if !known {
		return fmt.Errorf("%w: %.32q", ErrUnknownKey, kid)
	}
	if len(pub) != ed25519.PublicKeySize || !ed25519.Verify(pub, signed, signature) {
		return ErrBadSignature
	}
	return nil
}
