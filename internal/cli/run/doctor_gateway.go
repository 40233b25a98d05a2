package run

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/countersign-dev/countersign/gateway/token"
	"github.com/countersign-dev/countersign/streams"
)

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
