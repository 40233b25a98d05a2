package streams

import (
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/subject"
)

// Role says what a user may do. The table roles defines every role.
type Role string

// The roles.
const (
	RoleRuntime    Role = "runtime"    // tenant: asks admission, publishes its own events
	RoleSubscriber Role = "subscriber" // tenant: follows the outputs
	RoleReviewer   Role = "reviewer"   // tenant: resolves approvals
	RoleOperator   Role = "operator"   // administers: policies, mandates, publishers, doctor

	// RoleGateway brings the requests and events of programs that speak HTTP, for one tenant. It
	// speaks only for publishers that are registered as reached through it, which the admitter
	// and ingest check. It resolves no approval and writes no record.
	RoleGateway Role = "gateway"

	RoleProvisioner Role = "provisioner" // creates streams and buckets, and changes none that exists
	RoleAdmitter    Role = "admitter"
	RoleCorrelator  Role = "correlator"
	RoleAuditor     Role = "auditor"

	// RoleCustodian carries out erasures. Only it can delete messages from the log, from the
	// quarantine and from the buckets that hold what agents sent.
	RoleCustodian Role = "custodian"

	// RoleWitness signs checkpoints from outside. It reads checkpoints, hands in its signatures
	// under its own name, and can do nothing else.
	RoleWitness Role = "witness"
)

// KV buckets.
const (
	BucketPolicies       = "policies"
	BucketMandates       = "mandates"
	BucketPublishers     = "publishers"
	BucketApprovals      = "approvals"
	BucketKeys           = "keys"
	BucketSessionSecrets = "session_keys"
	BucketLeases         = "leases"        // which instance of correlator, auditor and ingest is active
	BucketRules          = "rules"         // treatment of the findings of a tenant's rules
	BucketConfirmed      = "confirmations" // AAEP confirmations that were used
	BucketSpend          = "spend"         // money that is spent or reserved under mandates' budgets
	BucketRedaction      = "redaction"     // the tenants' redaction policies
	BucketRetention      = "retention"     // the tenants' retention policies, legal holds and erasures
	BucketWitnesses      = "witnesses"     // keys of the witnesses of checkpoints, and the signatures that they hand in
	BucketTokens         = "tokens"        // SHA-256 of the tokens with which programs sign in at a gateway
)

// Streams other than the log.
const (
	StreamQuarantine  = "GOV_QUARANTINE"
	StreamCheckpoints = "GOV_CHECKPOINTS"
)

type accountPlace uint8

const (
	placeTenant  accountPlace = 1 << iota
	placeGateway              // listed with a tenant's users, and none of them
	placeServices
	placeOperator
	placeSystem
)

// role is one row of the permission table: where its users live and which subjects they may use.
// Placeholders: {p} subject prefix, {t} tenant token, {u} user, {inbox} the user's inbox prefix,
// {shard} the log stream. What is not listed is denied.
//
// A user outside the services' account has an account of its own. It reaches the services' account
// only by what its account imports: services (requests, with the identity that the server
// stamps) and outputs (streams).
type role struct {
	place    accountPlace
	pub      []string
	denyPub  []string
	sub      []string
	services []serviceMapping
	outputs  []string
	limits   userLimits
}

// userLimits bound what one user of a tenant, or its gateway, takes of the server: the greatest numbers of
// connections, and of subscriptions of each. A message waits in the server once for each subscription, up to
// maxPending on a connection that reads nothing. A publish takes a subscription while it waits for its
// acknowledgement, so runtimes and gateways need many; those see only the answers to their own requests.
type userLimits struct{ connections, subscriptions int }

// serviceMapping is a service: the subject that the services' account exports, and the subject in
// the importing account; "" means the same subject.
type serviceMapping struct{ subject, importedAs string }

// plainServices are services with the same subject in both accounts.
func plainServices(subjects ...string) (out []serviceMapping) {
	for _, s := range subjects {
		out = append(out, serviceMapping{subject: s})
	}
	return out
}

// roles is the permission table. Each of these invariants has a test. Only the admitter subscribes to
// admit, ingest, mandates, resolve and tokens, and only the correlator to follow, because the first reply wins. No
// role has allow_responses, because it overrides a deny: replies go to _R_ subjects, which the
// server makes when a request crosses accounts. A runtime cannot publish the type "request", so a
// request copy in the log is the admitter's.
var roles = map[Role]role{
	RoleRuntime: {
		place:   placeTenant,
		pub:     []string{"{p}.events.{t}.{u}.>", "{p}.admit.{t}.*", "{p}.mandates.{t}"},
		denyPub: []string{"{p}.events.{t}.{u}.*.*." + subject.TypeRequest},
		sub:     []string{"{inbox}.>"},
		services: []serviceMapping{{subject: "{p}.admit.{t}.>"}, {subject: "{p}.mandates.{t}"},
			{subject: "{p}.ingest.{t}.{u}.>", importedAs: "{p}.events.{t}.{u}.>"}},
		limits: userLimits{512, 1024},
	},
	RoleSubscriber: {
		place:    placeTenant,
		pub:      []string{"{p}.follow.{t}", "{p}.mandates.{t}"},
		sub:      []string{"{p}.decisions.{t}.>", "{p}.calls.{t}.>", "{p}.findings.{t}.>", "{p}.approvals.{t}.>", "{inbox}.>"},
		services: plainServices("{p}.follow.{t}", "{p}.mandates.{t}"),
		outputs:  []string{"{p}.decisions.{t}.>", "{p}.calls.{t}.>", "{p}.findings.{t}.>", "{p}.approvals.{t}.>"},
		limits:   userLimits{32, 32},
	},
	RoleReviewer: {
		place:    placeTenant,
		pub:      []string{"{p}.resolve.{t}"},
		sub:      []string{"{p}.approvals.{t}.>", "{p}.decisions.{t}.>", "{inbox}.>"},
		services: plainServices("{p}.resolve.{t}"),
		outputs:  []string{"{p}.approvals.{t}.>", "{p}.decisions.{t}.>"},
		limits:   userLimits{32, 32},
	},
	RoleGateway: {
		place:   placeGateway,
		pub:     joinLists([]string{"{p}.admit.{t}.*", "{p}.events.{t}.>", "{p}.follow.{t}", "{p}.mandates.{t}", "{p}.tokens.{t}"}, gatewayReads),
		denyPub: []string{"{p}.events.{t}.*.*.*." + subject.TypeRequest},
		sub:     []string{"{inbox}.>"},
		services: append([]serviceMapping{{subject: "{p}.admit.{t}.>"}, {subject: "{p}.ingest.{t}.>", importedAs: "{p}.events.{t}.>"},
			{subject: "{p}.follow.{t}"}, {subject: "{p}.mandates.{t}"}, {subject: "{p}.tokens.{t}"}}, plainServices(gatewayReads...)...),
		limits: userLimits{64, 8192},
	},
	RoleOperator: {
		place:    placeOperator,
		pub:      append(operatorServices, durabilitySubject),
		denyPub:  []string{principalRevocations},
		sub:      []string{"{inbox}.>"},
		services: plainServices(operatorServices...),
	},
	RoleProvisioner: {
		place: placeServices,
		pub:   []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.CREATE.*", durabilitySubject},
		sub:   []string{"{inbox}.>"},
	},
	RoleAdmitter: {
		place: placeServices,
		pub: joinLists(commonSubjects, readLog, readKV(BucketPolicies, BucketMandates, BucketPublishers, BucketApprovals, BucketKeys, BucketSpend, BucketConfirmed, BucketLeases),
			writeKV(BucketApprovals, BucketKeys, BucketSpend, BucketConfirmed), makeKV(BucketSessionSecrets),
			getKV(BucketTokens), infoKV(BucketTokens),
			// revocations of mandates alone: a principal's
			[]string{principalRevocations},
			// its lease on ingest, and the entry of each admitter
			[]string{"$KV." + BucketLeases + ".ingest.{shard}", "$KV." + BucketLeases + ".admitter.*"},
			[]string{"{p}.events.>", "{p}.decisions.>", "{p}.approvals.>", "{p}.findings.*." + quotaSeverity + ".*", "$SRV.APPLIED.admitter.*", "{inbox}.>", // admitters ask each other
				"{p}.control.{shard}.*", "{p}.quarantine.*", "_R_.>"}),
		sub: []string{"{p}.admit.>", "{p}.ingest.>", "{p}.resolve.>", "{p}.mandates.>", "{p}.tokens.>", "{p}.calls.>", "{p}.control.{shard}." + events.ControlErasure, "$SRV.>", "{inbox}.>"},
	},
	RoleCorrelator: {
		place: placeServices,
		pub: joinLists(commonSubjects, readLog, readKV(BucketPolicies, BucketMandates, BucketPublishers, BucketApprovals, BucketKeys, BucketRules, BucketLeases),
			writeKV(BucketLeases), makeKV(BucketSessionSecrets),
			[]string{"{p}.calls.>", "{p}.findings.>", "{p}.control.{shard}.*", "{p}.quarantine.*", "_R_.>"}),
		sub: []string{"{p}.follow.>", "$SRV.>", "{inbox}.>"},
	},
	RoleAuditor: {
		place: placeServices,
		pub: joinLists(commonSubjects, readLog, readKV(BucketPolicies, BucketPublishers, BucketKeys, BucketSessionSecrets, BucketLeases, BucketRedaction, BucketRetention),
			writeKV(BucketKeys, BucketSessionSecrets, BucketLeases),
			getKV(BucketWitnesses), infoKV(BucketWitnesses),
			[]string{"{p}.checkpoints.*", "{p}.findings.>", "{p}.control.{shard}.*", "{p}.quarantine.*", "_R_.>",
				"$JS.API.STREAM.INFO." + StreamCheckpoints, "$JS.API.STREAM.MSG.GET." + StreamCheckpoints,
				"$JS.API.STREAM.MSG.GET." + StreamQuarantine}),
		sub: []string{"$SRV.>", "{inbox}.>"},
	},
	RoleCustodian: {
		place: placeServices,
		pub: joinLists(commonSubjects, getKV(BucketSessionSecrets, BucketApprovals, BucketRetention), infoKV(BucketSessionSecrets, BucketApprovals, BucketRetention),
			writeKV(BucketRetention), deleteFrom(append([]string{"{shard}"}, erasableStreams...)...),
			[]string{"{p}.control.{shard}." + events.ControlErasure, "{p}.control.{shard}." + events.ControlExpiry, "{p}.control.{shard}." + events.ControlRetention,
				"$JS.API.STREAM.INFO.{shard}", "$JS.API.STREAM.MSG.GET.{shard}",
				"$JS.API.STREAM.INFO." + StreamQuarantine, "$JS.API.STREAM.MSG.GET." + StreamQuarantine}),
		sub: []string{"{inbox}.>"},
	},
	RoleWitness: {
		place: placeOperator,
		pub:   witnessServices,
		sub:   []string{"{inbox}.>"},

		services: plainServices(witnessServices...),
	},
}

// Roles are all roles, in the order of the documentation.
var Roles = []Role{RoleRuntime, RoleSubscriber, RoleReviewer, RoleGateway, RoleOperator, RoleProvisioner, RoleAdmitter, RoleCorrelator, RoleAuditor, RoleCustodian, RoleWitness}

// Permissions are the subjects that a role may use, with the placeholders of the
// table: {p} subject prefix, {t} tenant token, {u} user, {inbox} the user's inbox
// prefix, {shard} the log stream. What is not listed is denied.
// Connections and Subscriptions, of each connection, are the most that a user may have; 0: no limit.
type Permissions struct {
	Publish, DenyPublish, Subscribe []string
	Connections, Subscriptions      int
}

// PermissionsOf gives the row of a role.
func PermissionsOf(r Role) Permissions {
	row := roles[r]
	return Permissions{Publish: slices.Clone(row.pub), DenyPublish: slices.Clone(row.denyPub), Subscribe: slices.Clone(row.sub),
		Connections: row.limits.connections, Subscriptions: row.limits.subscriptions}
}

// gatewayReads permits a gateway to list and read the receipt keys of its shard, which are public. It does not
// read the bucket of tokens: a permission cannot name keys of a bucket, and other tenants' are in it. An
// account that imports no $JS.API.INFO is answered by the server itself that it has no JetStream.
var gatewayReads = joinLists([]string{"$JS.API.INFO"}, getKV(BucketKeys), infoKV(BucketKeys))

// witnessServices is all that a witness may publish.
var witnessServices = joinLists([]string{"$JS.API.INFO", "$JS.API.STREAM.INFO." + StreamCheckpoints, "$JS.API.STREAM.MSG.GET." + StreamCheckpoints},
	getKV(BucketWitnesses), infoKV(BucketWitnesses), []string{"$KV." + BucketWitnesses + ".signed.{u}.*"})

// principalRevocations are the keys of mandates' revocations by their principals: only the admitter, which knows
// the principal from the server's stamp, writes them.
const principalRevocations = "$KV." + BucketMandates + ".*.*.revoked_by_principal.*"

// quotaSeverity is the severity of the only finding that the admitter makes: a publisher exceeded its
// quota.
const quotaSeverity = "medium"

// erasableStreams are the streams other than the log from which a custodian can delete single
// messages: they hold what agents sent, or keys that an erasure destroys.
var erasableStreams = []string{StreamQuarantine, "KV_" + BucketSessionSecrets, "KV_" + BucketApprovals, "KV_" + BucketRetention}

// deleteFrom permits deleting single messages, which overwrites them on disk.
func deleteFrom(list ...string) (out []string) {
	for _, s := range list {
		out = append(out, "$JS.API.STREAM.MSG.DELETE."+s)
	}
	return out
}

// infoKV permits reading the state of buckets, which lists their keys.
func infoKV(buckets ...string) (out []string) {
	for _, b := range buckets {
		out = append(out, "$JS.API.STREAM.INFO.KV_"+b)
	}
	return out
}

// durabilitySubject asks every server for its JetStream settings. The system account exports it
// (read-only) to the services and the operators.
const durabilitySubject = "$SYS.REQ.SERVER.PING.JSZ"

var (
	commonSubjects = []string{"$JS.API.INFO", durabilitySubject}
	readLog        = []string{
		"$JS.API.STREAM.INFO.{shard}", "$JS.API.STREAM.MSG.GET.{shard}",
		"$JS.API.CONSUMER.CREATE.{shard}.*", "$JS.API.CONSUMER.DELETE.{shard}.*", "$JS.FC.{shard}.>",
	}
)

// operatorServices lists what the services' account exports to the operators. Every one is
// request-reply, so answers come back on a subject that the server made.
var operatorServices = joinLists(
	[]string{"$SRV.>",
		"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST", "$JS.API.STREAM.INFO.*",
		"$JS.API.CONSUMER.NAMES.*", "$JS.API.CONSUMER.LIST.*", "$JS.API.CONSUMER.INFO.*.*",
		"$JS.API.STREAM.MSG.GET.{shard}", "$JS.API.STREAM.MSG.GET." + StreamCheckpoints},
	getKV(BucketPolicies, BucketMandates, BucketPublishers, BucketApprovals, BucketKeys, BucketSpend, BucketRules, BucketRedaction, BucketRetention, BucketWitnesses, BucketTokens, BucketLeases),
	writeKV(BucketPolicies, BucketMandates, BucketPublishers, BucketRules, BucketRedaction, BucketRetention, BucketWitnesses, BucketTokens),
)

// getKV permits reading single keys, from the bucket's leader.
func getKV(buckets ...string) (out []string) {
	for _, b := range buckets {
		s := "KV_" + b
		out = append(out, "$JS.API.STREAM.MSG.GET."+s)
	}
	return out
}

// readKV permits reading and watching buckets.
func readKV(buckets ...string) (out []string) {
	out = getKV(buckets...)
	for _, b := range buckets {
		s := "KV_" + b
		out = append(out, "$JS.API.STREAM.INFO."+s, "$JS.API.CONSUMER.CREATE."+s, "$JS.API.CONSUMER.CREATE."+s+".>",
			"$JS.API.CONSUMER.DELETE."+s+".*", "$JS.API.CONSUMER.INFO."+s+".*", "$JS.FC."+s+".>")
	}
	return out
}

// makeKV permits reading and making single keys, but not deleting them: replacing a key leaves the
// bytes of the old revision on disk, and only a custodian overwrites them.
func makeKV(buckets ...string) []string {
	return joinLists(getKV(buckets...), infoKV(buckets...), writeKV(buckets...))
}

func writeKV(buckets ...string) (out []string) {
	for _, b := range buckets {
		out = append(out, "$KV."+b+".>")
	}
	return out
}

func joinLists(lists ...[]string) (out []string) {
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// placeholders holds the values for the placeholders of the permission table.
type placeholders struct{ prefix, shard, tenant, user, inbox string }

func (s placeholders) fillOne(text string) string { return s.fillAll([]string{text})[0] }

func (s placeholders) fillAll(list []string) []string {
	r := strings.NewReplacer("{p}", s.prefix, "{shard}", s.shard, "{t}", s.tenant, "{u}", s.user, "{inbox}", s.inbox)
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = r.Replace(v)
	}
	return out
}
