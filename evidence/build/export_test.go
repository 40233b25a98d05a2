package build

// What the tests of the package see beside its API.
type DocumentFunc = documentFunc

var (
	IsRecordSignature = isRecordSignature
	IsIdentifierValue = isIdentifierValue
)

// SetDocument replaces the redaction of documents. The builder then redacts every body.
func (b *Builder) SetDocument(f DocumentFunc) { b.document = f }

// Staged counts the heads that are not committed.
func (c *Chain) Staged() int { return len(c.staged) }
