package statement

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/countersign-dev/countersign/events/signing"
)

// ErrKey says that a text is not a public key for statements.
var ErrKey = errors.New("not an Ed25519 public key (PEM, base64url, or a checkpoint key)")

// EncodeKey encodes a public key as PEM, SubjectPublicKeyInfo.
func EncodeKey(key ed25519.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// ParseKey parses a public key: PEM as EncodeKey writes it, unpadded base64url, or the text of a
// checkpoint key, which may also sign statements.
func ParseKey(text string) (ed25519.PublicKey, error) {
	text = strings.TrimSpace(text)
	if block, rest := pem.Decode([]byte(text + "\n")); block != nil {
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		public, ok := key.(ed25519.PublicKey)
		if err != nil || !ok || block.Type != "PUBLIC KEY" || strings.TrimSpace(string(rest)) != "" {
			return nil, ErrKey
		}
		return public, nil
	}
	if parts := strings.Split(text, "+"); len(parts) >= 3 {
		return noteKey(strings.Join(parts[2:], "+"))
	}
	public, err := signing.DecodePublic(text)
	if err != nil {
		return nil, ErrKey
	}
	return public, nil
}

// noteKey decodes the last part of a note's verifier key: an algorithm byte, 1 for Ed25519, and the key.
func noteKey(text string) (ed25519.PublicKey, error) {
	b, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(b) != 1+ed25519.PublicKeySize || b[0] != 1 {
		return nil, fmt.Errorf("%w: the note key is malformed", ErrKey)
	}
	return ed25519.PublicKey(b[1:]), nil
}
