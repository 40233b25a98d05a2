package daemon

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/testkit"
)

func TestReach(t *testing.T) {
	var r Reach
	begin := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		second               int
		answered, down, move bool
	}{
		{0, true, false, false}, {1, false, false, false}, {2, true, false, false}, // one answer that is missing is no outage
		{3, false, false, false}, {3, false, true, false}, {6, false, true, false}, {7, false, true, true}, // another server is tried
		{8, false, true, false}, {10, false, true, false}, {11, false, true, true}, {12, false, true, false}, // and again
		{13, true, false, false}, {17, false, false, false},
	} {
		if down, move := r.addAnswer(step.answered, begin.Add(time.Duration(step.second)*time.Second)); down != step.down || move != step.move {
			t.Errorf("step %d: down %t, move %t", i, down, move)
		}
	}
}

// A connection leaves a server that does not reach the others, whether the health report hears of it or not, and
// one that knows no other server stays.
func TestConnectionsLeaveAServerThatIsCutOff(t *testing.T) {
	const two = "nats://192.0.2.1,nats://192.0.2.2"
	for name, c := range map[string]struct {
		servers, then string
		reports       bool
	}{"reported": {two, "192.0.2.2", true}, "silent": {two, "192.0.2.2", false}, "one server": {"nats://192.0.2.1", "192.0.2.1", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := nats.Connect(c.servers, nats.SetCustomDialer(testkit.DeafNATS{}), nats.DontRandomize(), nats.ReconnectWait(time.Millisecond))
			testkit.OK(t, err)
			defer nc.Close()
			f, env := Flags{Stream: "GOV"}, Env{Log: zerolog.Nop(), Health: NewHealth()}
			problem := func() string { return env.Health.Report().Problems["jetstream"] }
			if c.reports {
				defer f.WatchJetStream(t.Context(), nc, env, nil)()
				testkit.Eventually(t, "it is reported", func() bool { return problem() != "" })
			} else {
				defer f.watchLeader(t.Context(), nc, env, nil)()
			}
			testkit.Eventually(t, "the connection is with "+c.then, func() bool { return strings.Contains(nc.ConnectedUrl(), c.then) })
			if !c.reports && problem() != "" {
				t.Error(problem())
			}
		})
	}
}
