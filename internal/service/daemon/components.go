package daemon

// Component is a part that a service can be unhealthy for: a key of Report.Problems.
type Component struct {
	Name string
	Of   string // the services that report it
	When string // when it is unhealthy, and what that means
}

// Components lists all of them. A test compares the list with the names that services set; make
// docs writes it into docs/reference/health.md.
func Components() []Component {
	return []Component{
		{"nats", "all", "a connection is lost"},
		{"jetstream", "all", "the log's leader did not answer twice, or there is no log; an admitter takes no requests"},
		{"jetstream_start", "all", "JetStream has no leader yet"},
		{"lease", "admitter, correlator, auditor", "the lease of the shard can be neither read nor taken, because NATS takes no writes; it does not work (an admitter takes no events)"},
		{"requests", "admitter", "it cannot connect again for requests after JetStream was away; it takes none"},
		{"policies", "admitter", "no policy, or the set does not compile; everything is denied"},
		{"policies_watch", "admitter", "the bucket was not read again after an outage; everything is denied, because what is in force may be old"},
		{"mandates_watch", "admitter", "likewise"},
		{"publishers_watch", "admitter", "likewise"},
		{"spend_watch", "admitter", "likewise"},
		{"keys_watch", "admitter", "likewise"},
		{"approvals_watch", "admitter", "likewise"},
		{"policy_log", "admitter", "a change is not recorded yet; it decides only then"},
		{"mandate_log", "admitter", "likewise"},
		{"publisher_log", "admitter", "likewise"},
		{"publishers", "admitter", "a tenant's declarations cannot be used; its requests are denied"},
		{"approval_records", "admitter", "an approval's outcome was not written"},
		{"rates", "admitter", "counters of limits are unknown; limits deny"},
		{"spend_calls", "admitter", "ends of calls cannot be followed; unspent money stays reserved"},
		{"receipt_key", "admitter", "the key directory cannot be followed; or the key is retired, and the admitter stops"},
		{"confirmations", "admitter", "AAEP confirmations cannot be read; none counts"},
		{"durability", "admitter", "acknowledged records can be lost: interval, memory, unaccepted replicated, or unknown; or a server that holds the log is away"},
		{"log", "admitter, correlator", "the last decision was not recorded (the answer was deny); outputs cannot be written"},
		{"tokens", "gateway", "they cannot be read; after some seconds no caller is signed in"},
		{"keys", "gateway", "they cannot be read; after some seconds no receipt is checked"},
		{"oidc", "gateway", "the issuer does not answer: a JWT by a new key is refused, and after five minutes every JWT"},
		{"outputs", "gateway", "they cannot be followed; streams get nothing new"},
		{"events", "gateway", "AAEP's events cannot be followed; subscriptions get nothing new"},
		{"rules", "correlator", "switches cannot be read; those on the log count"},
		{"replay", "correlator", "the log is read again after an erasure, for more than a minute, and no other instance is active; findings come late"},
		{"session_keys", "correlator", "the bucket does not answer; nothing is correlated"},
		{"snapshot", "correlator", "it cannot be written; a restart reads the log from the last one on, else from its beginning"},
		{"unopened_keys", "correlator, auditor", "the key of a session does not open, which happens when another program wrote it; a substitute is used"},
		{"shard", "correlator", "of several shards, this one failed; it is restarted"},
		{"store", "auditor", "the last write to ClickHouse, quarantine or checkpoints failed; or ClickHouse has not answered for 15 s, at the start, too"},
		{"redaction", "auditor", "a tenant's redaction policy cannot be used; its bodies are withheld"},
		{"retention", "auditor", "an erasure or expiry is held up; or the clocks cannot be trusted, and no policy is applied"},
		{"retention_classes", "auditor", "a retention policy cannot be read; the strictest class of the last one holds"},
		{"witnesses", "auditor", "witnesses' submissions cannot be read or stored, or the log's key signed one that is not of this log"},
		{"process", "up", "a service does not run, does not answer, or reads the log before it is ready; if it ended, why"},
	}
}
