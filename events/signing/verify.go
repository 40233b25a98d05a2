package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// KeySet holds the published verification keys by key id. The nil set trusts
// nobody.
type KeySet map[string]ed25519.PublicKey

// Verify checks a compact JWS and returns its payload and key id.
//
// A token whose header is to the letter what Sign writes is checked here; every
// other one, which somebody else's JWS library may have made, by go-jose. Both
// ways give the same answer.
func (ks KeySet) Verify(typ, token string) (payload []byte, kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	if kid, ours := ourHeader(head, typ); ours {
		return ks.verifyOurs(token, head, rest, kid)
	}
	return ks.verifyOther(typ, token)
}

// VerifyDetached checks a detached compact JWS over payload and returns its key
// id. A nil payload is ErrMalformed, an empty one is not.
func (ks KeySet) VerifyDetached(typ, token string, payload []byte) (kid string, err error) {
	head, rest, _ := strings.Cut(token, ".")
	if kid, ours := ourHeader(head, typ); ours {
		return ks.verifyOursDetached(head, rest, kid, payload)
	}
	return ks.verifyOtherDetached(typ, token, payload)
}

// strict refuses what other base64 decoders let pass: spare bits at the end.
// Line breaks it skips like every decoder of the standard library; see decode.
var strict = base64.RawURLEncoding.Strict()

// decode refuses every spelling but one.
func decode(part string) ([]byte, bool) {
	b, err := strict.DecodeString(part)
	return b, err == nil && len(part) == strict.EncodedLen(len(b))
}

// kidLength is how many characters KeyID gives.
const kidLength = 16

// maxHeader bounds the headers that are compared here, in bytes.
const maxHeader = 128

// ourHeader reports whether an encoded header is the one that Sign writes for a
// type and some key, and which.
func ourHeader(head, typ string) (kid string, ours bool) {
	const prefix, middle, end = `{"alg":"` + algorithm + `","kid":"`, `","typ":"`, `"}`
	size := len(prefix) + kidLength + len(middle) + len(typ) + len(end)
	if size > maxHeader || len(head) != strict.EncodedLen(size) || strings.ContainsAny(head, "\r\n") {
		return "", false
	}
	var in, out [2 * maxHeader]byte
	n, err := strict.Decode(out[:], in[:copy(in[:], head)])
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

func (ks KeySet) verifyOurs(token, head, rest, kid string) ([]byte, string, error) {
	body, sig, cut := strings.Cut(rest, ".")
	payload, ok := decode(body)
	signature, fine := decode(sig)
	if !cut || !ok || !fine {
		return nil, "", ErrMalformed
	}
	if err := ks.check(kid, []byte(token[:len(head)+1+len(body)]), signature); err != nil {
		return nil, kid, err
	}
	return payload, kid, nil
}

func (ks KeySet) verifyOursDetached(head, rest, kid string, payload []byte) (string, error) {
	sig, detached := strings.CutPrefix(rest, ".")
	signature, ok := decode(sig)
	if !detached || !ok || payload == nil {
		return "", ErrMalformed
	}
	signed := make([]byte, 0, len(head)+1+strict.EncodedLen(len(payload)))
	signed = strict.AppendEncode(append(append(signed, head...), '.'), payload)
	return kid, ks.check(kid, signed, signature)
}

func (ks KeySet) check(kid string, signed, signature []byte) error {
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
	if !canonical(token) {
		return nil, "", ErrMalformed
	}
	obj, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return nil, "", ErrMalformed
	}
	return ks.verify(typ, obj, nil)
}

func (ks KeySet) verifyOtherDetached(typ, token string, payload []byte) (kid string, err error) {
	if !canonical(token) {
		return "", ErrMalformed
	}
	obj, err := jose.ParseDetached(token, payload, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return "", ErrMalformed
	}
	_, kid, err = ks.verify(typ, obj, payload)
	return kid, err
}

// canonical reports whether a token is the one way to write what it says.
// Base64 decoders skip line breaks and spare bits; a token changed there would
// verify and yet have another hash than the one that was recorded.
func canonical(token string) bool {
	for part := range strings.SplitSeq(token, ".") {
		if _, ok := decode(part); !ok {
			return false
		}
	}
	return true
}

func (ks KeySet) verify(typ string, obj *jose.JSONWebSignature, detached []byte) ([]byte, string, error) {
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
