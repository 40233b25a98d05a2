package evidence_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence/evidencetest"
	"github.com/countersign-dev/countersign/evidence/tree"
)

// moreVectors writes the parts of the worked example that are not about single
// records: retirement, shared signatures, consistency, witnesses.
func moreVectors(t *testing.T, f *evidencetest.Fixture, block func(title, text string)) {
	block("Key retirement (RFC 8785).", string(f.Encode(f.Retirement())))
	records := [][]byte{f.Encode(events.Tick{Shard: "one"}), f.Encode(events.Tick{Shard: "two"}), f.Encode(events.Tick{Shard: "three"})}
	signatures, err := f.Receipt.SignRecords(records)
	evidencetest.Must(t, err)
	var lines []string
	for i, r := range records {
		lines = append(lines, string(r), signatures[i])
	}
	block("Three records that share one signature: each record, and below it its `Countersign-Signature`.", strings.Join(lines, "\n"))

	proof, err := tree.ConsistencyProof(f, 3, f.Tree.Size())
	evidencetest.Must(t, err)
	var old tree.Tree
	for _, b := range f.Built[:3] {
		old.Append(b.Hash)
	}
	path := []string{old.Root().String()}
	for _, h := range proof {
		path = append(path, h.String())
	}
	block("The root of the first 3 records, and the consistency proof from there to the checkpoint (base64).", strings.Join(path, "\n"))

	skey, vkey, err := tree.NewWitnessKey(bytes.NewReader(evidencetest.Derived("witness")), "witness.example.com/w1")
	evidencetest.Must(t, err)
	w, err := tree.WitnessSigner(skey)
	evidencetest.Must(t, err)
	signed, _, err := tree.Cosign(w, f.Checkpoint(), note.VerifierList(f.Verifier), nil, nil, evidencetest.Start.Add(time.Hour))
	evidencetest.Must(t, err)
	block("Witness: seed (hex), verifier key, and the checkpoint with its signature.", fmt.Sprintf("%x\n%s\n%s", evidencetest.Derived("witness"), vkey, signed))
}
