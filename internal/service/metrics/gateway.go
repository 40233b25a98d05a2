package metrics

import (
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Outcomes of an admission over HTTP that are no verdicts.
const (
	Unrecorded = "unrecorded" // the admitter refused, and no record says so
	Failed     = "failed"     // there was no answer, or none that makes sense
)

var gatewayOutcomes = append(append([]string{}, verdicts...), Unrecorded, Failed)

// Gateway is the set of the gateway's metrics.
type Gateway struct {
	answered, refused, admitted, stored vector
	seconds                             prometheus.Histogram
	state                               atomic.Pointer[GatewayState]
}

// GatewayState has the functions that read what gauges of the gateway show.
type GatewayState struct {
	Load            func() GatewayLoad
	TokensEnding    func() (n int, known bool)        // how many of its tokens end soon; not known without a current view of them
	CertificateEnds func() (at time.Time, known bool) // of its own certificate; not known without TLS
}

// GatewayLoad is what a gateway works on, and how much of it is allowed.
type GatewayLoad struct{ Inflight, MaxInflight, Streams, Subscriptions, MaxStreams int }

// Gateway returns the gateway's metrics. answers are the statuses that each endpoint has; other pairs are exposed
// once they are counted. refusals are the codes of refusals. A service that is run again passes state anew.
func (r *Registry) Gateway(answers map[string][]string, refusals []string, state GatewayState) *Gateway {
	g := once(r, "gateway", func(r *Registry) *Gateway {
		documented := func(endpoint, status string) bool { return slices.Contains(answers[endpoint], status) }
		g := &Gateway{
			answered: r.addVector(descGatewayAnswers, "", documented, slices.Collect(maps.Keys(answers)), slices.Concat(slices.Collect(maps.Values(answers))...)),
			refused:  r.addVector(descGatewayRefused, "", nil, refusals), admitted: r.addVector(descGatewayAdmitted, "", nil), stored: r.addVector(descGatewayStored, "", nil),
			seconds: r.addHistogram(descGatewaySeconds, "", secondBuckets),
		}
		g.state.Store(&state)
		for d, value := range map[*familyDesc]func(GatewayLoad) int{
			&descGatewayInflight: func(l GatewayLoad) int { return l.Inflight }, &descGatewayInflightMax: func(l GatewayLoad) int { return l.MaxInflight },
			&descGatewayStreams: func(l GatewayLoad) int { return l.Streams }, &descGatewaySubscriptions: func(l GatewayLoad) int { return l.Subscriptions },
			&descGatewayStreamsMax: func(l GatewayLoad) int { return l.MaxStreams },
		} {
			r.addScraped(*d, "", func() (float64, bool) { return float64(value(g.state.Load().Load())), true })
		}
		r.addScraped(descGatewayTokens, "", func() (float64, bool) {
			n, known := g.state.Load().TokensEnding()
			return float64(n), known
		})
		r.addScraped(descGatewayCertificate, "", func() (float64, bool) {
			at, known := g.state.Load().CertificateEnds()
			return time.Until(at).Seconds(), known
		})
		return g
	})
	g.state.Store(&state)
	return g
}

// Answered counts a response; refusal is the code of what was refused, "" for an answer.
func (g *Gateway) Answered(endpoint string, status int, refusal string) {
	g.answered.with(endpoint, strconv.Itoa(status)).Inc()
	if refusal != "" {
		g.refused.with(refusal).Inc()
	}
}

// Worked records the duration of a request that was worked on.
func (g *Gateway) Worked(begun time.Time) {
	observeSince(g.seconds, begun)
}

// Admitted counts a request to the admitter by its outcome: a verdict, Unrecorded or Failed.
func (g *Gateway) Admitted(protocol, outcome string) {
	g.admitted.with(protocol, outcome).Inc()
}

// Stored counts events that are durably on the log.
func (g *Gateway) Stored(protocol string, n int) {
	g.stored.with(protocol).Add(float64(n))
}
