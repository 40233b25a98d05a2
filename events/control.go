package events

// Kinds of control records (the last token of their subject).
const (
	ControlTick      = "tick"      // events.Tick
	ControlCursor    = "cursor"    // events.Cursor
	ControlPolicy    = "policy"    // events.PolicyChange
	ControlMandate   = "mandate"   // events.MandateChange
	ControlKey       = "key"       // events.KeyRecord
	ControlPublisher = "publisher" // events.PublisherChange
	ControlRules     = "rules"     // events.RulesChange
	ControlResolve   = "resolve"   // events.ResolveAttempt
	ControlRedaction = "redaction" // events.RedactionChange

	// ControlKeyRetired has a kind of its own: a reader that knows only keys must not
	// take a retirement for one.
	ControlKeyRetired = "key_retired" // events.KeyRetirement
)

// Tick advances the time of an idle shard by its broker time.
type Tick struct {
	Shard string `json:"shard"` // name of the log's stream
	Due   Time   `json:"due"`   // the deadline that requires the tick
}

// Cursor is the correlator's position and fence. It is written in one atomic batch with the
// outputs of the messages up to Consumed.
type Cursor struct {
	Shard    string `json:"shard"`    // name of the log's stream
	Consumed uint64 `json:"consumed"` // last log sequence with all its outputs in the log
	Partial  int    `json:"partial"`  // number of outputs of sequence Consumed+1 that are in the log as well
	Outputs  int    `json:"outputs"`  // outputs in this batch, without the cursor
	Writer   string `json:"writer"`   // the instance that wrote it
}

// PolicyChange records that an admitter decides from another snapshot.
type PolicyChange struct {
	Writer   string      `json:"writer"`          // the admitter's process
	Revision uint64      `json:"revision"`        // of the policies bucket
	Digest   string      `json:"digest"`          // of the snapshot; empty if it was refused
	Policies []PolicyRef `json:"policies"`        // those in force
	Error    string      `json:"error,omitempty"` // why a candidate was refused; meanwhile everything is denied

	// Author, Message and PushedAt are unverified statements of the push; empty for documents
	// that were put into the bucket one by one.
	Author     string `json:"author,omitempty"`
	Message    string `json:"message,omitempty"`     // unverified
	PushedAt   Time   `json:"pushed_at,omitzero"`    // unverified
	RollbackTo uint64 `json:"rollback_to,omitempty"` // the revision that it restores
	// Documents are the policies as written, so that every decision can be replayed from the
	// log alone. Omitted reports that they were too large for the record; the bucket may still
	// have them.
	Documents []PolicyDocument `json:"documents,omitempty"`
	Omitted   bool             `json:"documents_omitted,omitempty"` // Documents were too large for the record
}

// PublisherChange records that an admitter decides from other publisher manifests,
// registrations and tool catalogues. A change whose documents are too many for one record is
// several, in order and with the same revision and digest; it counts when the last part is there.
type PublisherChange struct {
	Writer    string              `json:"writer"`          // the admitter's process
	Revision  uint64              `json:"revision"`        // of the publishers bucket
	Digest    string              `json:"digest"`          // of the documents
	Documents []PublisherDocument `json:"documents"`       // those in force, or this part of them
	Error     string              `json:"error,omitempty"` // documents that cannot be used, of the tenants in this part; meanwhile everything of their tenant is denied
	Part      int                 `json:"part,omitempty"`  // from 1; absent if the record is the whole change
	Parts     int                 `json:"parts,omitempty"` // how many parts there are
}

// PublisherDocument names one document in force.
type PublisherDocument struct {
	Tenant   string `json:"tenant"`   // whose document it is
	Name     string `json:"name"`     // "<kind>.<name>"
	Revision uint64 `json:"revision"` // of the document's key in the bucket
	Digest   string `json:"digest"`   // of its text

	// Error is the reason why the document cannot be used, without a value of it.
	Error string `json:"error,omitempty"`
	// Declares is what a manifest or registration declares for the evaluation of events; nil
	// for catalogues, for unusable documents, and where the record would be too large.
	Declares *PublisherDeclares `json:"declares,omitempty"`
}

// Profiles that a registration can name.
const (
	ProfileActionGovernance = "action-governance"
	ProfileAdmissionBound   = "admission-bound"
)

// PublisherDeclares is the log's extract of a publisher's manifest.
type PublisherDeclares struct {
	Publisher   string   `json:"publisher,omitempty"`   // the authenticated one; "" for an unregistered manifest
	Source      string   `json:"source"`                // source in its events; "" where nothing is declared of them
	Absent      []string `json:"absent,omitempty"`      // types of events that it does not expose, or only plans; sorted
	FailMode    string   `json:"fail_mode,omitempty"`   // fail_closed fail_open; "" if it is not registered
	Limitations int      `json:"limitations,omitempty"` // number of stated limitations
	Profiles    []string `json:"profiles,omitempty"`    // that the registration demands; sorted
	Partial     []string `json:"partial,omitempty"`     // types of events that it exposes partially; sorted
	Answers     bool     `json:"answers,omitempty"`     // its replies are those of the tenant's users (answers_confirmations)
}

// RedactionChange records that an auditor redacts by other policies. Each record of evidence
// names its policy.
type RedactionChange struct {
	Writer   string         `json:"writer"`   // the auditor's process
	Store    string         `json:"store"`    // the incarnation of the bucket
	Revision uint64         `json:"revision"` // its last sequence
	Policies []RedactionRef `json:"policies"` // of tenants that have one, by tenant
}

// RedactionRef names the redaction policy of one tenant.
type RedactionRef struct {
	Tenant string `json:"tenant"`           // whose policy it is
	Policy string `json:"policy,omitempty"` // its id
	Error  string `json:"error,omitempty"`  // why it cannot be used; meanwhile the tenant's bodies are withheld
}

// KeyRecord publishes a verification key. Vouch is a signed note of the
// checkpoint key over VouchText.
type KeyRecord struct {
	KeyID     string `json:"kid"`             // the first 16 hex digits of the public key's SHA-256
	Use       string `json:"use"`             // receipt
	Algorithm string `json:"alg"`             // EdDSA
	PublicKey string `json:"public_key"`      // unpadded base64url
	CreatedAt Time   `json:"created_at"`      // by the signer's clock; not vouched for
	Vouch     string `json:"vouch,omitempty"` // signed note of the checkpoint key
}

// VouchText is the text that the checkpoint key signs to vouch for k.
func (k KeyRecord) VouchText() string {
	return "countersign/key/v1\n" + k.Use + " " + k.KeyID + " " + k.Algorithm + " " + k.PublicKey + "\n"
}

// KeyRetirement retires a verification key. What the key signs after this record in the log
// does not count; what it signed before stays valid. It cannot be undone. Vouch is a signed
// note of the checkpoint key over VouchText.
type KeyRetirement struct {
	KeyID     string `json:"kid"`             // the key
	Use       string `json:"use"`             // receipt
	RetiredAt Time   `json:"retired_at"`      // time of signing, by the signer's clock; the log's order counts
	Vouch     string `json:"vouch,omitempty"` // signed note of the checkpoint key
}

// VouchText is the text that the checkpoint key signs to retire a key. Its first line differs
// from that of every other text signed by that key.
func (k KeyRetirement) VouchText() string {
	return "countersign/key-retired/v1\n" + k.Use + " " + k.KeyID + " " + k.RetiredAt.String() + "\n"
}
