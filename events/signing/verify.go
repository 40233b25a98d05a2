package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// KeySet holds the published verification keys by key id. The nil set trusts no key.
type KeySet map[string]ed25519.PublicKey

// Verify verifies a compact JWS and returns its payload and key id.
//
// A token with exactly the header that Sign writes is verified directly; go-jose verifies every
// other one, as other JWS libraries make them. Both ways give the same answer.
func (ks KeySet) Verify(typ, token string) (payload []byte, kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	if kid, ours := plainHeader(head, typ); ours {
		return ks.verifyPlain(token, head, rest, kid)
	}
	return ks.verifyOther(typ, token)
}

// VerifyDetached verifies a detached compact JWS over payload and returns its key id. A nil
// payload is ErrMalformed, an empty one is not.
func (ks KeySet) VerifyDetached(typ, token string, payload []byte) (kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	if kid, ours := plainHeader(head, typ); ours {
		return ks.verifyPlainDetached(head, rest, kid, payload)
	}
	return ks.verifyOtherDetached(typ, token, payload)
}

// strictBase64 refuses spare bits at the end, which other base64 decoders accept. It skips line
// breaks like every decoder of the standard library; see decodeSegment.
var strictBase64 = base64.RawURLEncoding.Strict()

// decodeSegment accepts only the one canonical spelling.
func decodeSegment(part string) ([]byte, bool) {
	b, err := strictBase64.DecodeString(part)
	return b, err == nil && len(part) == strictBase64.EncodedLen(len(b))
}

// kidLength is the number of characters of a KeyID.
const kidLength = 16

// maxHeader bounds the headers that plainHeader compares, in bytes.
const maxHeader = 128

// plainHeader reports whether an encoded header is the one that Sign writes for a type, and
// returns its key id.
func plainHeader(head, typ string) (kid string, ours bool) {
	const prefix, middle, end = `{"alg":"` + algorithm + `","kid":"`, `","typ":"`, `"}`
	size := len(prefix) + kidLength + len(middle) + len(typ) + len(end)
	if size > maxHeader || len(head) != strictBase64.EncodedLen(size) || strings.ContainsAny(head, "\r\n") {
		return "", false
	}
	var in, out [2 * maxHeader]byte
	n, err := strictBase64.Decode(out[:], in[:copy(in[:], head)])
	if err != nil || n != size {
		return "", false
	}
	text := out[:n]
	kid = string(text[len(prefix) : len(prefix)+kidLength])
	if !isKeyID(kid) || string(text[:len(prefix)]) != prefix || string(text[len(prefix)+kidLength:]) != middle+typ+end {
		return "", false
	}
	return kid, true
}

func isKeyID(kid string) bool {
	for i := range len(kid) {
		if c := kid[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(kid) == kidLength
}

func (ks KeySet) verifyPlain(token, head, rest, kid string) ([]byte, string, error) {
	body, sig, cut := strings.Cut(rest, ".")
	payload, ok := decodeSegment(body)
	signature, fine := decodeSegment(sig)
	if !cut || !ok || !fine {
		return nil, "", ErrMalformed
	}
	if err := ks.verifySignature(kid, []byte(token[:len(head)+1+len(body)]), signature); err != nil {
		return nil, kid, err
	}
	return payload, kid, nil
}

func (ks KeySet) verifyPlainDetached(head, rest, kid string, payload []byte) (string, error) {
	sig, detached := strings.CutPrefix(rest, ".")
	signature, ok := decodeSegment(sig)
	if !detached || !ok || payload == nil {
		return "", ErrMalformed
	}
	signed := make([]byte, 0, len(head)+1+strictBase64.EncodedLen(len(payload)))
	signed = strictBase64.AppendEncode(append(append(signed, head...), '.'), payload)
	return kid, ks.verifySignature(kid, signed, signature)
}

func (ks KeySet) verifySignature(kid string, signed, signature []byte) error {
	pub, known := ks[kid]
	if !known {
		return unknownKey(kid)
	}
	if len(pub) != ed25519.PublicKeySize || !ed25519.Verify(pub, signed, signature) {
		return ErrBadSignature
	}
	return nil
}

func unknownKey(kid string) error { return fmt.Errorf("%w: %.32q", ErrUnknownKey, kid) }

func (ks KeySet) verifyOther(typ, token string) (payload []byte, kid string, err error) {
	if !isCanonicalToken(token) {
		return nil, "", ErrMalformed
	}
	obj, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, "", ErrMalformed
	}
	return ks.verifyJOSE(typ, obj, nil)
}

func (ks KeySet) verifyOtherDetached(typ, token string, payload []byte) (kid string, err error) {
	if !isCanonicalToken(token) {
		return "", ErrMalformed
	}
	obj, err := jose.ParseDetached(token, payload, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return "", ErrMalformed
	}
	_, kid, err = ks.verifyJOSE(typ, obj, payload)
	return kid, err
}

// isCanonicalToken reports whether a token is in its canonical spelling. Base64 decoders ignore
// line breaks and spare bits; a token changed there would verify and yet have another hash than
// the recorded one.
func isCanonicalToken(token string) bool {
	for part := range strings.SplitSeq(token, ".") {
		if _, ok := decodeSegment(part); !ok {
			return false
		}
	}
	return true
}

func (ks KeySet) verifyJOSE(typ string, obj *jose.JSONWebSignature, detached []byte) ([]byte, string, error) {
	if len(obj.Signatures) != 1 {
		return nil, "", ErrMalformed
	}
	h := obj.Signatures[0].Protected
	if got, _ := h.ExtraHeaders[jose.HeaderType].(string); got != typ {
		return nil, "", ErrMalformed
	}
	pub, known := ks[h.KeyID]
	if !known {
		return nil, h.KeyID, unknownKey(h.KeyID)
	}
	if len(pub) != ed25519.PublicKeySize {
		return nil, h.KeyID, ErrBadSignature
	}
	if detached != nil {
		if err := obj.DetachedVerify(detached, pub); err != nil {
			return nil, h.KeyID, ErrBadSignature
		}
		return detached, h.KeyID, nil
	}
	payload, err := obj.Verify(pub)
	if err != nil {
		return nil, h.KeyID, ErrBadSignature
	}
	return payload, h.KeyID, nil
}
