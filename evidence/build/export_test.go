package build

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/countersign-dev/countersign/events"
)

// What the tests of the package see beside its API.
type DocumentFunc = documentFunc

var (
	IsRecordSignature = isRecordSignature
	IsIdentifierValue = isIdentifierValue
)

// SetDocument replaces the redaction of documents. The builder then redacts every body.
func (b *Builder) SetDocument(f DocumentFunc) { b.document = f }

// IsClean reports whether the body of a message is found clean.
func (b *Builder) IsClean(m events.LogMessage) bool {
	w := b.getWorkspace()
	defer b.workspaces.Put(w)
	r := recordRedactor{builder: b, workspace: w, scope: w.scopeOf(b.space, m.Subject), message: m}
	return r.readBody().text != nil
}

// Staged counts the heads that are not committed.
func (c *Chain) Staged() int { return len(c.staged) }

// Commitment is macCommitment under a session key.
func Commitment(sessionKey []byte, seq uint64, index int, path string, form byte, value []byte) string {
	return macCommitment(hmac.New(sha256.New, sessionKey), seq, index, path, form, value)
}
