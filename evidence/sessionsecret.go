package evidence

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/countersign-dev/countersign/events/digest"
)

const (
	wrapVersion   = 1
	wrapPrefix    = "countersign/session-key/v1\x00"
	wrapNonceSize = 12
)

// WrapSessionSecret encrypts a session's secret under its tenant's wrapping key
// (digest.Master.Wrapping): version byte 1, the nonce, and AES-256-GCM of key. Tenant and
// session are the additional data, so a wrapped key cannot be moved to another session.
// wrapping and key have 32 bytes; nonce has 12 random bytes and must be used only once.
func WrapSessionSecret(wrapping []byte, tenant, session string, key, nonce []byte) ([]byte, error) {
	aead, err := wrapCipher(wrapping)
	if err != nil {
		return nil, err
	}
	if len(key) != digest.KeySize || len(nonce) != wrapNonceSize {
		return nil, fmt.Errorf("%w: a session key has %d bytes and its nonce %d", ErrKeys, digest.KeySize, wrapNonceSize)
	}
	out := append([]byte{wrapVersion}, nonce...)
	return aead.Seal(out, nonce, key, wrapData(tenant, session)), nil
}

// UnwrapSessionSecret decrypts the output of WrapSessionSecret for the same tenant and session.
func UnwrapSessionSecret(wrapping []byte, tenant, session string, wrapped []byte) ([]byte, error) {
	aead, err := wrapCipher(wrapping)
	if err != nil {
		return nil, err
	}
	if len(wrapped) != 1+wrapNonceSize+digest.KeySize+aead.Overhead() || wrapped[0] != wrapVersion {
		return nil, ErrUnwrap
	}
	key, err := aead.Open(nil, wrapped[1:1+wrapNonceSize], wrapped[1+wrapNonceSize:], wrapData(tenant, session))
	if err != nil {
		return nil, ErrUnwrap
	}
	return key, nil
}

func wrapCipher(wrapping []byte) (cipher.AEAD, error) {
	if len(wrapping) != digest.KeySize {
		return nil, fmt.Errorf("%w: a wrapping key has %d bytes", ErrKeys, digest.KeySize)
	}
	block, err := aes.NewCipher(wrapping)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeys, err)
	}
	return cipher.NewGCM(block)
}

func wrapData(tenant, session string) []byte {
	data := binary.BigEndian.AppendUint32([]byte(wrapPrefix), uint32(len(tenant)))
	return append(append(data, tenant...), session...)
}
