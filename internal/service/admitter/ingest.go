package admitter

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/countersign-dev/countersign/internal/service/ingest"
	"github.com/countersign-dev/countersign/internal/service/quota"
)

// IngestFlags limit what publishers put on the log. The defaults are far above what a runtime
// needs and below what a shard can store.
type IngestFlags struct {
	PublisherEvents     int           `help:"Events per second that a publisher may put on the log (0: no limit)." env:"COUNTERSIGN_PUBLISHER_EVENTS" default:"10000"`
	TenantEvents        int           `help:"Events per second of all publishers of a tenant together (0: no limit)." env:"COUNTERSIGN_TENANT_EVENTS" default:"20000"`
	PublisherBytes      int           `help:"Bytes per second of a publisher's events, and of its requests, headers included; each comma counts as 128 more (0: no limit)." env:"COUNTERSIGN_PUBLISHER_BYTES" default:"33554432"`
	TenantBytes         int           `help:"The same of all publishers of a tenant together (0: no limit)." env:"COUNTERSIGN_TENANT_BYTES" default:"67108864"`
	PublisherAdmissions int           `help:"Admissions per second that a publisher may ask this admitter for; more are answered deny (0: no limit)." env:"COUNTERSIGN_PUBLISHER_ADMISSIONS" default:"10000"`
	TenantAdmissions    int           `help:"Admissions per second of all publishers of a tenant together, from this admitter (0: no limit)." env:"COUNTERSIGN_TENANT_ADMISSIONS" default:"20000"`
	QuotaBurst          time.Duration `help:"How much may come at once after a pause: what a limit allows in this time." env:"COUNTERSIGN_QUOTA_BURST" default:"10s"`
}

func (f IngestFlags) checkLimits() error {
	for _, n := range []int{f.PublisherEvents, f.TenantEvents, f.PublisherBytes, f.TenantBytes, f.PublisherAdmissions, f.TenantAdmissions} {
		if n < 0 {
			return errors.New("limits of events, bytes and admissions must not be below zero (0 is no limit)")
		}
	}
	if f.QuotaBurst < 0 {
		return errors.New("--quota-burst must not be below zero")
	}
	return nil
}

func (f IngestFlags) eventQuotas() quota.Quotas {
	return quota.Quotas{
		Publisher: quota.Rate{Messages: f.PublisherEvents, Bytes: f.PublisherBytes},
		Tenant:    quota.Rate{Messages: f.TenantEvents, Bytes: f.TenantBytes}, Burst: f.QuotaBurst,
	}
}

func (f IngestFlags) admissionQuotas() quota.Quotas {
	return quota.Quotas{
		Publisher: quota.Rate{Messages: f.PublisherAdmissions, Bytes: f.PublisherBytes},
		Tenant:    quota.Rate{Messages: f.TenantAdmissions, Bytes: f.TenantBytes}, Burst: f.QuotaBurst,
	}
}

// startIngest stores publishers' events while this instance holds the ingest lease. It returns
// once the instance is active or on standby. Events use connections and a group commit of their
// own, so that they do not delay verdicts. stop finishes the events that were accepted.
func (s *service) startIngest(ctx context.Context) (stop func(), err error) {
	log, releaseLog, err := s.flags.ConnectAgain(ctx, ServiceName+" event log", s.env)
	if err != nil {
		return nil, err
	}
	running, end := context.WithCancel(ctx)
	settled, done := make(chan struct{}), make(chan error, 1)
	var ended sync.WaitGroup
	ended.Go(func() {
		done <- ingest.Run(running, ingest.Options{
			Stream: s.flags.Stream, Space: s.space, Log: log, Connect: func(ctx context.Context) (*nats.Conn, func(), error) {
				return s.flags.ConnectAgain(ctx, ServiceName+" events", s.env)
			},
			Lease:         s.flags.LeaseOptions(ingest.ServiceName, s.env),
			PublishSingly: s.prefersSingles(), Meter: quota.NewMeter(s.flags.eventQuotas()), MaySpeakFor: s.publishers.reachedThrough, OnQuotaExceeded: func(tenant, publisher string, e quota.Excess) { s.reportExcess(tenant, publisher, "events", e) },
			Metrics: s.env.Metrics.Ingest(s.flags.Stream), Logger: s.env.Log, OnRole: func() { close(settled) },
		})
	})
	stop = func() {
		end()
		ended.Wait()
		releaseLog()
	}
	select {
	case <-settled:
		return stop, nil
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop()
	return nil, err
}

// overQuota counts a request and reports whether it exceeds a quota of m, which counts requests of
// one kind.
func (s *service) overQuota(m *quota.Meter, kind, tenant, user string, header map[string][]string, body []byte) bool {
	e, ok := m.Take(time.Now(), tenant, user, quota.Cost(header, body))
	if !ok && e.First {
		s.reportExcess(tenant, user, kind, e)
	}
	return !ok
}

// Kinds of requests that a quota counts, as findings say it.
const (
	kindAdmissions = "admissions"
	kindReviews    = "reviewers' requests"
)
