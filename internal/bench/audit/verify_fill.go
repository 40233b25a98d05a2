package audit

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/digest"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence"
	"github.com/countersign-dev/countersign/evidence/build"
	"github.com/countersign-dev/countersign/evidence/tree"
	"github.com/countersign-dev/countersign/internal/cli/system"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/storage"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
	"github.com/countersign-dev/countersign/streams"
)

// verifyShard is a shard of evidence made for measuring: calls as a governed runtime makes them,
// decisions with valid signatures, the tree and its checkpoints stored.
type verifyShard struct {
	db        *read.Reader
	name      string
	builder   *build.Builder
	chain     *build.Chain
	tree      tree.Tree
	receipt   signing.PrivateKey
	signer    note.Signer
	verifiers []note.Verifier
	last      string // newest checkpoint
	session   string // one of its sessions
	sample    []evidence.Row
	engine    int
}

// sampleKeys derives every key from its name.
type sampleKeys struct{}

func sampleKey(name string) []byte {
	mac := hmac.New(sha256.New, []byte("countersign bench verify"))
	mac.Write([]byte(name))
	return mac.Sum(nil)
}

func (sampleKeys) TenantKey(tenant string) []byte { return sampleKey("tenant/" + tenant) }

func (sampleKeys) SessionSecret(tenant, session string) ([]byte, error) {
	return sampleKey("session/" + tenant + "/" + session), nil
}

const (
	insertBatch   = 10_000 // records of one insert
	sampleRecords = 20_000 // records that are also kept in memory
)

var shardCreated = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// fillShard makes about n records. The decisions of share calls have one signature.
func fillShard(ctx context.Context, db *read.Reader, n, share int, progress func(done, total uint64)) (*verifyShard, error) {
	s := &verifyShard{db: db, name: streams.IncarnationName(streams.DefaultShard, shardCreated), chain: build.NewChain(noHead, 1<<30)}
	var err error
	if s.builder, err = build.NewBuilder(s.name, subject.Space{}); err != nil {
		return nil, err
	}
	if s.receipt, err = signing.NewPrivateKey(sampleKey("receipt")); err != nil {
		return nil, err
	}
	skey, vkey, err := signing.NewCheckpointKey(bytes.NewReader(sampleKey("checkpoint")))
	if err != nil {
		return nil, err
	}
	if s.signer, err = signing.CheckpointSigner(skey); err != nil {
		return nil, err
	}
	if s.verifiers, err = system.CheckpointVerifiers(vkey); err != nil {
		return nil, err
	}
	var msgs []events.LogMessage
	if msgs, err = s.keyMessage(); err != nil {
		return nil, err
	}
	log := &auditLog{tenant: "acme", publisher: "runtime-1"}
	for call := 0; ; call += share {
		more, err := s.round(log, call, share)
		if err != nil {
			return nil, err
		}
		if msgs = append(msgs, more...); len(msgs) >= insertBatch || int(s.tree.Size())+len(msgs) >= n {
			if err := s.store(ctx, msgs); err != nil {
				return nil, err
			}
			msgs = msgs[:0]
			progress(uint64(s.tree.Size()), uint64(n))
		}
		if int(s.tree.Size()) >= n {
			s.session = sampleSession(call / callsPerSession / 2)
			s.builder, s.chain = nil, nil // their memory must not count for the verification
			progress(uint64(n), uint64(n))
			return s, nil
		}
	}
}

func noHead(events.SessionID) (evidence.Head, error) { return evidence.Head{}, nil }

func (s *verifyShard) keyMessage() ([]events.LogMessage, error) {
	k := events.KeyRecord{KeyID: s.receipt.ID, Use: signing.UseReceipt, Algorithm: "EdDSA", PublicKey: signing.EncodePublic(s.receipt.Public()), CreatedAt: events.At(shardCreated)}
	var err error
	if k.Vouch, err = signing.SignKeyRecord(s.signer, k); err != nil {
		return nil, err
	}
	body, err := events.Encode(k)
	return []events.LogMessage{{Subject: subject.Space{}.Control(streams.DefaultShard, events.ControlKey), Body: body}}, err
}

// round makes the messages of some calls, with one signature for their decisions.
func (s *verifyShard) round(log *auditLog, first, share int) (msgs []events.LogMessage, err error) {
	var decisions [][]byte
	var at []int
	for n := first; n < first+share; n++ {
		roles := log.call(n)
		for _, role := range []string{"admitter", target.Runtime, "correlator"} {
			for _, m := range roles[role] {
				msgs = append(msgs, events.LogMessage{Subject: m.Subject, Header: m.Header, Body: m.Body})
			}
		}
		i := len(msgs) - len(roles[target.Runtime]) - len(roles["correlator"]) - 1
		d, err := events.DecodeRecord[events.Decision](msgs[i].Body)
		if err != nil {
			return nil, fmt.Errorf("the sample decision: %w", err)
		}
		d.RequestDigest = digest.Keyed(sampleKeys{}.TenantKey(d.Tenant), msgs[i-1].Body)
		if msgs[i].Body, err = events.Encode(d); err != nil {
			return nil, err
		}
		decisions, at = append(decisions, msgs[i].Body), append(at, i)
	}
	signatures, err := s.receipt.SignRecords(decisions)
	if err != nil {
		return nil, err
	}
	for i, value := range signatures {
		msgs[at[i]].Header[events.HeaderSignature] = []string{value}
	}
	return msgs, nil
}

// store builds records and stores them with their tree and a checkpoint, as the auditor does.
func (s *verifyShard) store(ctx context.Context, msgs []events.LogMessage) error {
	for i := range msgs {
		msgs[i].Seq = uint64(s.tree.Size()) + uint64(i) + 1
		msgs[i].Time = shardCreated.Add(time.Duration(msgs[i].Seq) * time.Millisecond)
	}
	built, err := s.builder.BuildBatch(s.chain, msgs, sampleKeys{})
	if err != nil {
		return err
	}
	s.chain.Commit()
	rows := make([]storage.EvidenceRow, len(built))
	var nodes []storage.TreeNode
	for i, b := range built {
		r := b.Row()
		rows[i] = storage.EvidenceRow{Shard: r.Shard, Seq: r.Seq, Tenant: r.Tenant, Session: r.Session, Kind: r.Kind, Subject: r.Subject,
			BrokerTime: r.BrokerTime, BodyDigest: r.BodyDigest, Record: r.Record, RecordHash: r.RecordHash, SessionIndex: b.Record.SessionIndex}
		if len(s.sample) < sampleRecords {
			s.sample = append(s.sample, r)
		}
		for _, n := range s.tree.Append(b.Hash) {
			nodes = append(nodes, storage.TreeNode{Index: uint64(n.Index), Hash: n.Hash})
		}
	}
	writer := write.New(s.db.Pool())
	if err := writer.InsertTreeNodes(ctx, s.name, nodes); err != nil {
		return err
	}
	if err := writer.InsertEvidence(ctx, write.EvidenceToken(s.name, rows[0].Seq), rows); err != nil {
		return err
	}
	cp := tree.Checkpoint{Shard: s.name, Size: s.tree.Size(), Root: s.tree.Root()}
	if s.last, err = tree.SignCheckpoint(s.signer, cp); err != nil {
		return err
	}
	return writer.InsertCheckpoint(ctx, storage.Checkpoint{Shard: s.name, Size: uint64(cp.Size), Root: cp.Root, Note: s.last, Created: shardCreated})
}
