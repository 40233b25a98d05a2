package correlate

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/countersign-dev/countersign/correlation"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/signing"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// TestRate: the correlator's own messages and what came before its first cursor do not count.
func TestRate(t *testing.T) {
	w := written{own: []uint64{1, 11, 12, 50}, cursors: []cursor{{10, time.UnixMilli(0)}, {110, time.UnixMilli(100)}, {710, time.UnixMilli(500)}}}
	if got := w.rate(); got != (700-3)/0.5 {
		t.Errorf("%v/s", got)
	}
}

// TestTrafficOnASlowDisk: calls whose decisions are stored seconds after the request break no
// rule, unless they claim to have run before.
func TestTrafficOnASlowDisk(t *testing.T) {
	asked := time.Date(2026, 11, 23, 12, 54, 0, 0, time.UTC)
	stored := asked.Add(10 * time.Second)
	key, err := signing.NewPrivateKey(bytes.Repeat([]byte{1}, 32))
	servicetest.OK(t, err)
	record, err := events.Encode(events.KeyRecord{KeyID: key.ID, Use: "receipt", Algorithm: "EdDSA", PublicKey: signing.EncodePublic(key.Public()), CreatedAt: events.At(stored)})
	servicetest.OK(t, err)
	published := streams.Msg{Subject: subject.Space{}.Control(streams.DefaultShard, events.ControlKey), Body: record}
	calls := traffic{Tenant: "acme", Source: "bench", Key: key, TenantKey: bytes.Repeat([]byte{2}, 32)}
	for name, tt := range map[string]struct {
		ran  time.Time
		want string
	}{
		"they ran then":   {ran: stored},
		"they ran before": {ran: asked, want: "AH-C-083"},
	} {
		t.Run(name, func(t *testing.T) {
			msgs, err := calls.admitted(0, trafficGroup, asked)
			servicetest.OK(t, err)
			core, rule := correlation.New(correlation.Options{
				TenantKey: func(string) []byte { return calls.TenantKey }, KeyVoucher: func(events.KeyRecord) bool { return true },
			}), ""
			for i, m := range slices.Concat([]streams.Msg{published}, msgs, calls.reported(0, trafficGroup, asked, tt.ran)) {
				for _, o := range core.Apply(events.LogMessage{Seq: uint64(i + 1), Subject: m.Subject, Time: stored, Header: m.Header, Body: m.Body}) {
					if o.Finding != nil && o.Finding.Severity != events.SeverityInfo {
						rule = o.Finding.Rule
					}
				}
			}
			if rule != tt.want {
				t.Errorf("the finding is %q, want %q", rule, tt.want)
			}
		})
	}
}
