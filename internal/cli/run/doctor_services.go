package run

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/internal/service/daemon"
	"github.com/countersign-dev/countersign/streams"
)

// services reports the problems that an `up` of this machine has: it knows them when NATS is away, too.
func services(ctx context.Context, ready *target.Ready) (list []examined) {
	const check = "services"
	if ready == nil || ready.HTTPURL == "" || !ready.Owner.Runs() {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ready.HTTPURL+"/healthz", nil)
	if err != nil {
		return one(check, levelUnsafe, "the health endpoint of up: %v", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return one(check, levelUnsafe, "up runs, and its health endpoint does not answer: %v", err)
	}
	defer func() { _ = answer.Body.Close() }()
	var report daemon.Report
	if err := json.NewDecoder(io.LimitReader(answer.Body, maxReport)).Decode(&report); err != nil {
		return one(check, levelUnsafe, "up runs, and its health report cannot be read: %v", err)
	}
	for _, component := range slices.Sorted(maps.Keys(report.Problems)) {
		level := levelWarn
		if strings.HasSuffix(component, "/process") {
			level = levelUnsafe
		}
		list = append(list, examined{check, level, component + ": " + report.Problems[component]})
	}
	return list
}

// maxReport bounds a health report, in bytes; real ones are far smaller.
const maxReport = 1 << 20

// gateway checks that the gateway which the ready file names answers calls, and that no token of the tenant
// ends soon. A gateway that is away refuses everything: that is safe, and callers over HTTP stand still.
func (d doctor) gateway(ctx context.Context) []examined {
	var list []examined
	if ready := d.Target.ReadyInfo(); ready != nil && ready.GatewayURL != "" {
		list = append(list, checkReady(ctx, ready.GatewayURL)...)
	}
	records, err := streams.KVUnder(ctx, d.JS, streams.BucketTokens, token.Prefix(d.Target.Tenant))
	if err != nil {
		return append(list, one("gateway", levelWarn, "the tokens cannot be read: %v", err)...)
	}
	return append(list, checkTokens(records, time.Now())...)
}

func checkReady(ctx context.Context, url string) []examined {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return one("gateway", levelWarn, "its address is no URL: %v", err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return one("gateway", levelWarn, "no answer: callers over HTTP, hooks and MCP gates are refused: %v", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return one("gateway", levelWarn, "it cannot answer calls now (status %d): %s/healthz says why", answer.StatusCode, url)
	}
	return one("gateway", levelOK, "answers at %s", url)
}

// checkTokens finds the tokens that hold and end soon.
func checkTokens(records map[string][]byte, now time.Time) (list []examined) {
	for _, id := range slices.Sorted(maps.Keys(records)) {
		r, err := token.Decode(records[id])
		if err == nil && r.EndsSoon(now) {
			list = append(list, one("gateway", levelWarn, "the token %s of %s ends at %s (countersign token create)", id, r.User, r.ExpiresAt.Format(time.RFC3339))...)
		}
	}
	return list
}
