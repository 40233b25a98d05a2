package system

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/evidence/verify"
	"github.com/countersign-dev/countersign/internal/cli/target"
)

// A key of the environment that is not the ready file's is refused: one of the two is another system's. One on the command
// line is meant.
func TestCheckpointKey(t *testing.T) {
	key := map[string]string{"": ""}
	for i, name := range []string{"ready", "environment", "flag"} {
		_, public, err := signing.NewCheckpointKey(bytes.NewReader(bytes.Repeat([]byte{byte(i)}, 32)))
		if err != nil {
			t.Fatal(err)
		}
		key[name] = public
	}
	system := target.FromReady(target.Ready{PublicKey: key["ready"]})
	for _, tt := range []struct {
		t                       *target.Target
		flag, environment, want string
	}{
		{system, "", "", "ready"}, {system, "flag", "", "flag"}, {system, "flag", "environment", "flag"}, {system, "environment", "environment", ""}, {system, "ready", "ready", "ready"},
		{target.FromReady(target.Ready{}), "environment", "environment", "environment"}, {&target.Target{}, "environment", "environment", "environment"},
		{nil, "environment", "environment", "environment"}, {nil, "", "", ""}, {&target.Target{}, "", "", ""},
	} {
		t.Setenv("COUNTERSIGN_PUBLIC_KEY", key[tt.environment])
		if got, err := CheckpointKey(key[tt.flag], tt.t); got != key[tt.want] || (err == nil) != (tt.want != "") {
			t.Errorf("--key %s, environment %s: %q (%v), want %s", tt.flag, tt.environment, got, err, tt.want)
		} else if err != nil && tt.t == system && (!strings.Contains(err.Error(), key["ready"]) || !strings.Contains(err.Error(), key["environment"])) {
			t.Errorf("the refusal does not name both keys: %v", err)
		}
	}
}

// Evidence that ends before the log says so. It is a finding once an auditor that runs would have stored the rest.
func TestAddMissingEnd(t *testing.T) {
	at := time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC)
	ago := func(s int) time.Time { return at.Add(-time.Duration(s) * time.Second) }
	damaged := map[verify.Code]int{verify.CodeGap: 1}
	for name, tc := range map[string]struct {
		size   int64
		times  map[uint64]time.Time // of the messages that the log has
		until  time.Time
		byCode map[verify.Code]int
		behind uint64
		found  bool
	}{
		"it is whole":                   {size: 20},
		"it is longer by now":           {size: 25},
		"the auditor is about to store": {size: 17, times: map[uint64]time.Time{18: ago(5)}, behind: 3},
		"no auditor stores":             {size: 17, times: map[uint64]time.Time{18: ago(61)}, behind: 3, found: true},
		"the first one was erased":      {size: 17, times: map[uint64]time.Time{20: ago(61)}, behind: 3, found: true},
		"all were erased":               {size: 17, behind: 3},
		"a part that ends before":       {size: 17, times: map[uint64]time.Time{18: ago(61)}, until: ago(90)},
		"a part that should have it":    {size: 17, times: map[uint64]time.Time{18: ago(61)}, until: ago(30), behind: 3, found: true},
		"rows are missing":              {size: 17, times: map[uint64]time.Time{18: ago(61)}, byCode: damaged},
	} {
		l := &EvidenceLog{Last: 20, at: at}
		r := verify.Report{OK: true, Proved: true, Size: tc.size, ByCode: tc.byCode}
		err := l.addMissingEnd(t.Context(), tc.until, &r, func(_ context.Context, seq uint64) (*events.LogMessage, error) {
			if stored, there := tc.times[seq]; there {
				return &events.LogMessage{Seq: seq, Time: stored}, nil
			}
			return nil, nil
		})
		if err != nil || r.NotInEvidence != tc.behind || (r.RestsOn != "") != (tc.behind > 0) || r.OK == tc.found || r.Proved == tc.found || (r.ByCode[verify.CodeLogAhead] == 1) != tc.found {
			t.Errorf("%s: %v, %+v", name, err, r)
		}
	}
}
