package auditor

import (
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/storage/read"
	"github.com/countersign-dev/countersign/storage/write"
)

// shardAccess is what each part of the auditor works with. No part changes it.
type shardAccess struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	db     *read.Reader
	writer *write.Writer
	env    daemon.Env
	*retrier

	stream      string // of the log
	shard       string // the stream and its incarnation; set once the stream's state is read
	space       subject.Space
	signer      note.Signer
	verifierKey string // of signer
}

// isOfStream reports whether a shard is an incarnation of the audited stream.
func (s shardAccess) isOfStream(shard string) bool { return strings.HasPrefix(shard, s.stream+"@") }

// source is the CloudEvents source of what the auditor writes.
func (s shardAccess) source() string { return "/countersign/" + s.stream + "/auditor" }

// ownVerifier is the public half of this auditor's signing key.
func (s shardAccess) ownVerifier() (note.Verifiers, error) {
	v, err := signing.CheckpointVerifier(s.verifierKey)
	if err != nil {
		return nil, err
	}
	return note.VerifierList(v), nil
}
