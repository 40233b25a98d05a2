package daemon_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/internal/service/servicetest"
	"github.com/countersign-dev/countersign/streams"
)

// A service whose log does not exist any more is not well.
func TestALogThatIsGoneIsReported(t *testing.T) {
	t.Parallel()
	n := servicetest.Start(t, streams.Shard{})
	env := daemon.Env{Log: zerolog.Nop(), Health: daemon.NewHealth()}
	defer daemon.Flags{Stream: "GONE"}.WatchJetStream(t.Context(), n.Conn("provisioner"), env, nil)()
	servicetest.Eventually(t, "the missing log is reported", func() bool { return strings.Contains(env.Health.Report().Problems["jetstream"], "stream not found") })
}
