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

// Tick lets time pass on an idle shard: its broker time is what counts.
type Tick struct {
	Shard string `json:"shard"`
	Due   Time   `json:"due"` // the deadline that made the tick necessary
}

// Cursor is the correlator's position and its fence. It is written in one
// atomic batch with the outputs of the messages up to Consumed.
type Cursor struct {
	Shard    string `json:"shard"`
	Consumed uint64 `json:"consumed"` // last log sequence all of whose outputs are in the log
	Partial  int    `json:"partial"`  // how many outputs of sequence Consumed+1 are in the log as well
	Outputs  int    `json:"outputs"`  // outputs in this batch, the cursor not counted
	Writer   string `json:"writer"`   // which correlator wrote it
}

// PolicyChange records that an admitter now decides from another snapshot.
type PolicyChange struct {
	Writer   string      `json:"writer"`
	Revision uint64      `json:"revision"`
	Digest   string      `json:"digest"`
	Policies []PolicyRef `json:"policies"`
	Error    string      `json:"error,omitempty"` // why a candidate was refused; everything is denied meanwhile

	// Who pushed the set, and why, as they say themselves; empty for documents
	// that were put into the bucket one by one.
	Author     string `json:"author,omitempty"`
	Message    string `json:"message,omitempty"`
	PushedAt   Time   `json:"pushed_at,omitzero"`
	RollbackTo uint64 `json:"rollback_to,omitempty"`
	// Documents are the policies as they were written, so that every decision can
	// be made again from the log alone. Omitted says that they were too large for
	// the record; the bucket may still have them.
	Documents []PolicyDocument `json:"documents,omitempty"`
	Omitted   bool             `json:"documents_omitted,omitempty"`
}

// PublisherChange records that an admitter now decides from other publisher
// manifests, registrations and tool catalogues.
type PublisherChange struct {
	Writer    string              `json:"writer"`
	Revision  uint64              `json:"revision"`
	Digest    string              `json:"digest"`
	Documents []PublisherDocument `json:"documents"`
	Error     string              `json:"error,omitempty"` // what cannot be used; everything of its tenant is denied meanwhile
}

// PublisherDocument names one document that is in force.
type PublisherDocument struct {
	Tenant   string `json:"tenant"`
	Name     string `json:"name"` // "<kind>.<name>"
	Revision uint64 `json:"revision"`
	Digest   string `json:"digest"`

	// Error is why the document cannot be used, without a value of it.
	Error string `json:"error,omitempty"`
	// Declares is what a manifest or registration says that events are held
	// against; nil for catalogues, for what cannot be used, and where the record
	// would have become too large.
	Declares *PublisherDeclares `json:"declares,omitempty"`
}

// Profiles that a registration can name.
const (
	ProfileActionGovernance = "action-governance"
	ProfileAdmissionBound   = "admission-bound"
)

// PublisherDeclares is what the log has of a publisher's manifest.
type PublisherDeclares struct {
	Publisher   string   `json:"publisher,omitempty"`   // the authenticated one; "" for a manifest that nobody registered
	Source      string   `json:"source"`                // what its events say in source
	Absent      []string `json:"absent,omitempty"`      // types of events that it does not expose, or only plans; sorted
	FailMode    string   `json:"fail_mode,omitempty"`   // fail_closed fail_open; "" if it is not registered
	Limitations int      `json:"limitations,omitempty"` // how many it states
	Profiles    []string `json:"profiles,omitempty"`    // that the registration makes it keep to; sorted
	Partial     []string `json:"partial,omitempty"`     // types of events that it exposes in part only; sorted
}

// RedactionChange records that an auditor now redacts by other policies. Each
// record of evidence names the one that it was made by.
type RedactionChange struct {
	Writer   string         `json:"writer"`
	Store    string         `json:"store"`    // the incarnation of the bucket
	Revision uint64         `json:"revision"` // its last sequence
	Policies []RedactionRef `json:"policies"` // of tenants that have one, by tenant
}

// RedactionRef names the redaction policy of one tenant.
type RedactionRef struct {
	Tenant string `json:"tenant"`
	Policy string `json:"policy,omitempty"` // its id
	Error  string `json:"error,omitempty"`  // why it cannot be used; the tenant's bodies are withheld meanwhile
}

// KeyRecord publishes a verification key. Vouch is a signed note of the
// checkpoint key over VouchText.
type KeyRecord struct {
	KeyID     string `json:"kid"`
	Use       string `json:"use"` // receipt
	Algorithm string `json:"alg"` // EdDSA
	PublicKey string `json:"public_key"`
	CreatedAt Time   `json:"created_at"`
	Vouch     string `json:"vouch,omitempty"`
}

// VouchText is the text that the checkpoint key signs to vouch for k.
func (k KeyRecord) VouchText() string {
	return "countersign/key/v1\n" + k.Use + " " + k.KeyID + " " + k.Algorithm + " " + k.PublicKey + "\n"
}

// KeyRetirement takes a verification key back. From its place in the log on
// nothing counts that the key signs; what it signed before stays valid. It
// cannot be undone. Vouch is a signed note of the checkpoint key over VouchText.
type KeyRetirement struct {
	KeyID     string `json:"kid"`
	Use       string `json:"use"`        // receipt
	RetiredAt Time   `json:"retired_at"` // when it was signed, by the clock there; the log's order is what counts
	Vouch     string `json:"vouch,omitempty"`
}

// VouchText is the text that the checkpoint key signs to retire a key. Its first
// line is another than that of every other text that key signs.
func (k KeyRetirement) VouchText() string {
	return "countersign/key-retired/v1\n" + k.Use + " " + k.KeyID + " " + k.RetiredAt.String() + "\n"
}
