package e2e_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// An attacker with the admitter's password and its key can decide until the key is retired: from
// then on every such decision is found.
func TestRetiredKeyForges(t *testing.T) {
	t.Parallel()
	s := start(t)
	heard := listen(t, s, "gov.findings.acme.>")
	r := s.runtime(t)
	honest := r.admit(t, "agenthook", deniedCall("s-stolen", "call-1").bytes())
	genuine, err := message(s.connect(t, "operator"), "GOV", object{"seq": honest.seq})
	ok(t, err)
	seed, err := os.ReadFile(filepath.Join(s.keyDir(), "receipt.key"))
	ok(t, err)
	tool(t, "keys", "rotate", "--keys", s.keyDir()).want(t, 0)
	tool(t, "keys", "retire", "--keys", s.keyDir(), honest.kid()).want(t, 0)
	eventually(t, "the retirement is published", func() error {
		if k := s.listed(t)[honest.kid()]; k.text("retired_at") == "" {
			return fmt.Errorf("%v", k)
		}
		return nil
	})

	forgery := strings.Replace(string(genuine.Data), `"verdict":"deny"`, `"verdict":"allow"`, 1)
	b64 := base64.RawURLEncoding.EncodeToString
	raw, err := hex.DecodeString(strings.TrimSpace(string(seed)))
	ok(t, err)
	head := b64([]byte(`{"alg":"EdDSA","kid":"` + honest.kid() + `","typ":"countersign-record+jws"}`))
	signature := head + ".." + b64(ed25519.Sign(ed25519.NewKeyFromSeed(raw), []byte(head+"."+b64([]byte(forgery)))))
	reply, err := s.service(t, "admitter").RequestMsg(&nats.Msg{Subject: "gov.decisions.acme.allow.s-stolen",
		Header: nats.Header{"Countersign-Signature": {signature}}, Data: []byte(forgery)}, patience)
	ok(t, err)
	if strings.Contains(string(reply.Data), "error") {
		t.Fatalf("the forgery did not get onto the log: %s", reply.Data)
	}
	s.exact(t)
	expect(t, s, heard, "s-stolen", []string{"forged_record/critical"})
	rep, _ := s.report(t)
	if rep.OK || !strings.Contains(fmt.Sprint(rep.Problems), "decision_key_retired") {
		t.Errorf("verify says %+v", rep)
	}
	for _, p := range rep.Problems { // the forgery has the genuine decision's id
		if !slices.Contains([]string{"decision_key_retired", "decision_without_request", "decision_repeated"}, p.Code) {
			t.Errorf("and also %+v", p)
		}
	}
}
