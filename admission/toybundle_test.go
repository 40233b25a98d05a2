package admission_test

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/countersign-dev/countersign/admission"
	"github.com/countersign-dev/countersign/compliance/bundle"
	"github.com/countersign-dev/countersign/compliance/inforce"
	compliancetoy "github.com/countersign-dev/countersign/compliance/toyprotocol"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	evidencetoy "github.com/countersign-dev/countersign/evidence/toyprotocol"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/service/keys"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/schemas"
)

// checkToySchemas validates the log's decision records and events of the toy protocol by a
// registry with a row for it.
func checkToySchemas(t *testing.T, log []events.LogMessage) {
	t.Helper()
	const event = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://schemas.countersign.dev/toy/event/v1","type":"object","required":["run","was"]}`
	registry, err := schemas.Load(append(schemas.Protocols(),
		schemas.Protocol{Token: admission.ToyName, Schemas: fstest.MapFS{"toy/event.json": {Data: []byte(event)}}}))
	servicetest.OK(t, err)
	validated := map[string]int{}
	for _, m := range log {
		p, _ := subject.Space{}.Parse(m.Subject)
		schema := map[subject.Class]string{subject.Events: "toy/event", subject.Decisions: "countersign/decision"}[p.Class]
		if schema == "" || p.Type == subject.TypeRequest {
			continue
		}
		doc, err := strictjson.ReadObject(m.Body, strictjson.DefaultLimits)
		servicetest.OK(t, err)
		if violations := registry.Validate(schema, doc); violations != nil {
			t.Errorf("%s: %v", m.Subject, violations)
		}
		validated[schema]++
	}
	if got := fmt.Sprint(validated); got != "map[countersign/decision:1 toy/event:2]" {
		t.Errorf("validated %s", got)
	}
}

// checkToyBundle makes evidence of the log, exports the session as a bundle and verifies it.
func checkToyBundle(t *testing.T, n *servicetest.NATS) {
	t.Helper()
	evidencetoy.AddRow(t)
	compliancetoy.AddRow(t)
	in, publicKey := toyEvidence(t, n)
	var file bytes.Buffer
	servicetest.OK(t, bundle.Write(&file, in))
	result, err := bundle.Verify(bytes.NewReader(file.Bytes()), int64(file.Len()), publicKey, bundle.Options{})
	servicetest.OK(t, err)
	if !result.OK || result.Session != "s1" || result.Records != 4 || result.Decisions != 1 {
		t.Errorf("%+v", result)
	}
	members := readMembers(t, file.Bytes())
	for _, want := range []string{"gov.events.acme.rt1.toy.s1.bedtime", `"diary":"[redacted:never_store]"`, "yes: bedtime at sequence", "tool send_mail · call c1 · protocol toy"} {
		if !strings.Contains(members, want) {
			t.Errorf("the bundle does not have %q", want)
		}
	}
	for _, secret := range []string{"swordfish", "hunter2-secret"} {
		if strings.Contains(members, secret) {
			t.Errorf("the bundle has %q", secret)
		}
	}
}

// toyEvidence is the evidence of session s1 in the log.
func toyEvidence(t *testing.T, n *servicetest.NATS) (in bundle.Input, publicKey string) {
	t.Helper()
	const shard = "GOV@20261120T064150.123456789Z"
	builder, err := build.NewBuilder(shard, subject.Space{})
	servicetest.OK(t, err)
	chain := build.NewChain(func(evidence.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }, 0)
	built, err := builder.BuildBatch(chain, n.Log(), toyKeys{})
	servicetest.OK(t, err)
	var merkle tree.Tree
	var hashes toyHashes
	for _, b := range built {
		for _, node := range merkle.Append(b.Hash) {
			hashes = append(hashes, node.Hash)
		}
	}
	signer, publicKey, err := keys.Checkpoint(n.Keys)
	servicetest.OK(t, err)
	record, err := keys.ReceiptRecord(n.Keys)
	servicetest.OK(t, err)
	in = bundle.Input{Shard: shard, Tenant: servicetest.Tenant, Session: "s1", Keys: []events.KeyRecord{record}, Decided: noTexts{}}
	in.Checkpoint, err = tree.SignCheckpoint(signer, tree.Checkpoint{Shard: shard, Size: merkle.Size(), Root: merkle.Root()})
	servicetest.OK(t, err)
	for _, b := range built {
		row := b.Row()
		if row.Tenant != in.Tenant || row.Session != in.Session {
			continue
		}
		proof, err := tree.InclusionProof(hashes, merkle.Size(), row.Seq)
		servicetest.OK(t, err)
		in.Rows, in.Proofs = append(in.Rows, row), append(in.Proofs, proof)
	}
	return in, publicKey
}

// readMembers returns the texts of a bundle's files.
func readMembers(t *testing.T, file []byte) string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	servicetest.OK(t, err)
	var all strings.Builder
	for _, member := range z.File {
		r, err := member.Open()
		servicetest.OK(t, err)
		_, err = io.Copy(&all, io.LimitReader(r, 1<<20))
		servicetest.OK(t, err)
	}
	return all.String()
}

// toyKeys are the keys of records: random and kept by the auditor in a running system.
type toyKeys struct{}

func (toyKeys) TenantKey(string) []byte { return bytes.Repeat([]byte{2}, 32) }

func (toyKeys) SessionSecret(string, string) ([]byte, error) { return bytes.Repeat([]byte{3}, 32), nil }

// toyHashes are the stored hashes of a tree, by index.
type toyHashes []tlog.Hash

func (h toyHashes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, n := range indexes {
		out[i] = h[n]
	}
	return out, nil
}

// noTexts is a source without the texts of policies and mandates.
type noTexts struct{}

func (noTexts) Changes(uint64, func(inforce.Change) error) error { return nil }

func (noTexts) Policies(uint64) ([]events.PolicyDocument, string, error) {
	return nil, "not in this test", nil
}

func (noTexts) Mandate(string) ([]string, string, error) { return nil, "not in this test", nil }
