package streams

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// KVKeys lists the keys of a bucket, sorted, deleted ones included. Unlike the
// library's Keys it needs no consumer, so operators may use it: a consumer's
// delivery subject could be aimed at the log.
func KVKeys(ctx context.Context, js jetstream.JetStream, bucket string) ([]string, error) {
	prefix := "$KV." + bucket + "."
	st, err := js.Stream(ctx, "KV_"+bucket)
	if err != nil {
		return nil, fmt.Errorf("listing bucket %s: %w", bucket, explainStream(err))
	}
	info, err := st.Info(ctx, jetstream.WithSubjectFilter(prefix+">"))
	if err != nil {
		return nil, fmt.Errorf("listing bucket %s: %w", bucket, err)
	}
	keys := make([]string, 0, len(info.State.Subjects))
	for s := range info.State.Subjects {
		keys = append(keys, strings.TrimPrefix(s, prefix))
	}
	slices.Sort(keys)
	return keys, nil
}
