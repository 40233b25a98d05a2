package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path/filepath"
	"strconv"

	"github.com/countersign-dev/countersign/internal/atomicfile"
)

// Names in a managed engine.
const (
	// OwnerUser owns the database.
	OwnerUser = "countersign"
	// ReadonlyUser may only read the database.
	ReadonlyUser = "countersign_ro"
)

// credentials are the passwords of a data directory. They are made once and kept, so that a
// DSN stays valid when the engine restarts.
type credentials struct {
	Owner    string `json:"owner"`
	Readonly string `json:"readonly"`
}

const credentialsFile = "credentials.json"

// loadCredentials reads the passwords of a data directory, or makes them. The caller holds the
// directory's lock.
func loadCredentials(dir string) (credentials, error) {
	path := filepath.Join(dir, credentialsFile)
	b, err := atomicfile.ReadPrivate(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newCredentials(path)
	}
	if err != nil {
		return credentials{}, fmt.Errorf("reading the engine's passwords: %w", err)
	}
	var c credentials
	if json.Unmarshal(b, &c) != nil || c.Owner == "" || c.Readonly == "" {
		return credentials{}, fmt.Errorf("%s does not hold the engine's passwords: restore it, or remove it to get new ones", path)
	}
	return c, nil
}

func newCredentials(path string) (credentials, error) {
	c := credentials{newPassword(), newPassword()}
	b, err := json.Marshal(c)
	if err != nil {
		return credentials{}, err
	}
	if err := atomicfile.Write(path, b, 0o600); err != nil {
		return credentials{}, fmt.Errorf("keeping the engine's passwords: %w", err)
	}
	return c, nil
}

// newPassword returns 192 random bits as hex digits, which need no escaping.
func newPassword() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// passwordHash is the form of a password in users.xml. A fast hash is enough, because the
// passwords are random.
func passwordHash(password string) string {
	sum := sha256.Sum256([]byte(password))
	return hex.EncodeToString(sum[:])
}

// nativeDSN is a clickhouse-go DSN for the native protocol.
func nativeDSN(user, password, host string, port int, database string) string {
	u := url.URL{
		Scheme: "clickhouse",
		User:   url.UserPassword(user, password),
		Host:   net.JoinHostPort(host, strconv.Itoa(port)),
		Path:   "/" + database,
	}
	return u.String()
}
