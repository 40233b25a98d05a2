package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DurabilityClass says what an acknowledgement is worth.
type DurabilityClass string

// The durability classes, strongest first.
const (
	ClassFsync      DurabilityClass = "fsync"      // on disk, synced, before the acknowledgement
	ClassReplicated DurabilityClass = "replicated" // in the memory of a quorum of servers, each syncing now and then: a power failure of all loses acknowledged messages
	ClassInterval   DurabilityClass = "interval"   // one server, synced now and then: power loss loses acknowledged messages
	ClassMemory     DurabilityClass = "memory"     // lost with the process
)

const durabilityWait = 2 * time.Second

// LossRisk says how an acknowledged message of this class can be lost and what to
// do about it; it is empty if it cannot. separatePower is the operator's assertion
// that the servers of a cluster never lose power at the same time: only then are
// replicas that are not synced safe.
func (c DurabilityClass) LossRisk(detail string, separatePower bool) string {
	switch {
	case c == ClassFsync, c == ClassReplicated && separatePower:
		return ""
	case c == ClassReplicated:
		return "replicated: " + detail + ". A power failure of all servers at once loses acknowledged records: set sync_interval: always on every server, " +
			"or assert with --accept-replicated that the servers have separate power"
	case c == ClassInterval:
		return "interval: " + detail + ". Power loss loses acknowledged records: set sync_interval: always"
	}
	return string(c) + ": " + detail + ". Acknowledged records are lost with the server process: keep the stream in files, with sync_interval: always"
}

// Durability reads a stream's class from the servers that hold it, as they run
// (not from a file): file storage, persist mode and replicas of the stream and
// every server's sync setting. If a server does not answer, the class returned
// is the weakest that it can be, with an error.
func Durability(ctx context.Context, nc *nats.Conn, stream string) (DurabilityClass, string, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return ClassMemory, "", err
	}
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return ClassMemory, "", fmt.Errorf("reading stream %s: %w", stream, explainStream(err))
	}
	info := st.CachedInfo()
	switch cfg := info.Config; {
	case cfg.Storage == jetstream.MemoryStorage:
		return ClassMemory, "stream " + stream + " is kept in memory", nil
	case cfg.NoAck:
		return ClassInterval, "stream " + stream + " acknowledges nothing", nil
	case cfg.PersistMode == jetstream.AsyncPersistMode:
		return ClassInterval, "stream " + stream + " persists asynchronously", nil
	}
	holders := []string{nc.ConnectedServerName()}
	if info.Cluster != nil && info.Cluster.Leader != "" {
		holders = []string{info.Cluster.Leader}
		for _, r := range info.Cluster.Replicas {
			holders = append(holders, r.Name)
		}
	}
	syncs, err := syncSettings(ctx, nc, holders)
	return durabilityClass(holders, syncs, err)
}

// durabilityClass is the pure part: the settings of the holders decide.
func durabilityClass(holders []string, syncs map[string]syncSetting, err error) (DurabilityClass, string, error) {
	class, weakest := ClassFsync, ClassInterval
	if len(holders) > 1 {
		weakest = ClassReplicated
	}
	var detail, silent []string
	for _, h := range holders {
		s, known := syncs[h]
		if !known {
			silent = append(silent, h)
			continue
		}
		if s.Always {
			detail = append(detail, h+": sync always")
			continue
		}
		class = weakest
		detail = append(detail, fmt.Sprintf("%s: sync every %v", h, s.Interval))
	}
	if len(silent) > 0 && err == nil {
		err = fmt.Errorf("no answer from server(s) %s on %s: does the configuration export it from the system account?",
			strings.Join(silent, ", "), durabilitySubject)
	}
	if err != nil {
		class = weakest
	}
	return class, fmt.Sprintf("%d server(s); %s", len(holders), strings.Join(detail, ", ")), err
}

type syncSetting struct {
	Always   bool          `json:"sync_always"`
	Interval time.Duration `json:"sync_interval"`
}

// syncSettings asks all servers and returns once the wanted ones have answered.
func syncSettings(ctx context.Context, nc *nats.Conn, wanted []string) (map[string]syncSetting, error) {
	ctx, cancel := context.WithTimeout(ctx, durabilityWait)
	defer cancel()
	sub, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := nc.PublishRequest(durabilitySubject, sub.Subject, []byte(`{}`)); err != nil {
		return nil, err
	}
	found := map[string]syncSetting{}
	for missing := len(wanted); missing > 0; {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return found, nil // who is missing is said by classify
		}
		var resp struct {
			Server struct {
				Name string `json:"name"`
			} `json:"server"`
			Data struct {
				Config *syncSetting `json:"config"`
			} `json:"data"`
		}
		if json.Unmarshal(msg.Data, &resp) != nil || resp.Data.Config == nil {
			continue
		}
		if _, twice := found[resp.Server.Name]; twice {
			continue
		}
		found[resp.Server.Name] = *resp.Data.Config
		for _, w := range wanted {
			if w == resp.Server.Name {
				missing--
			}
		}
	}
	return found, nil
}
