package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// DurabilityClass says what guarantee an acknowledgement gives.
type DurabilityClass string

// The durability classes, strongest first.
const (
	ClassFsync      DurabilityClass = "fsync"      // on disk, synced, before the acknowledgement
	ClassReplicated DurabilityClass = "replicated" // in the memory of a quorum of servers, each syncing now and then: a power failure of all loses acknowledged messages
	ClassInterval   DurabilityClass = "interval"   // one server, synced now and then: power loss loses acknowledged messages
	ClassMemory     DurabilityClass = "memory"     // lost with the process
)

const durabilityWait = 2 * time.Second

// LossRisk describes how an acknowledged message of this class can be lost and what to do about
// it. It is empty if it cannot be lost. separatePower is the operator's assertion that the
// servers of a cluster never lose power at the same time: only then are unsynced replicas safe.
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

// AwayError reports that some of the servers that hold a stream are away. The class and the detail
// that come with it count.
type AwayError struct {
	Away []string // their names
	Of   int      // how many servers hold the stream
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("of the %d servers that hold the log %s is away; with fewer than %d nothing can be recorded", e.Of, strings.Join(e.Away, ", "), e.Of/2+1)
}

// Durability reads a stream's class from the running servers that hold it, not from a file: the
// stream's storage, persist mode and replicas, and every server's sync setting. A server that its
// leader knows to be away does not count, as it acknowledges nothing: the error is an *AwayError.
// So it is if a server is silent, and the class is then the weakest possible. If none answers, or on
// any other error, the class is unknown and the weakest.
func Durability(ctx context.Context, nc *nats.Conn, stream string) (DurabilityClass, string, error) {
	info, err := streamInfo(ctx, nc, stream)
	if err != nil {
		return ClassMemory, "", err
	}
	switch cfg := info.Config; {
	case cfg.Storage == jetstream.MemoryStorage:
		return ClassMemory, "stream " + stream + " is kept in memory", nil
	case cfg.NoAck:
		return ClassInterval, "stream " + stream + " acknowledges nothing", nil
	case cfg.PersistMode == jetstream.AsyncPersistMode:
		return ClassInterval, "stream " + stream + " persists asynchronously", nil
	}
	holders, away, err := streamHolders(nc, info)
	if err != nil {
		return ClassMemory, "", err
	}
	syncs, err := syncSettings(ctx, nc, holders)
	return durabilityClass(holders, away, syncs, err)
}

func streamInfo(ctx context.Context, nc *nats.Conn, stream string) (*jetstream.StreamInfo, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	st, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("reading stream %s: %w", stream, explainStream(err))
	}
	return st.CachedInfo(), nil
}

// streamHolders returns the servers that hold a stream; away are those that its leader knows to be away.
func streamHolders(nc *nats.Conn, info *jetstream.StreamInfo) (holders, away []string, err error) {
	if info.Cluster == nil {
		return []string{nc.ConnectedServerName()}, nil, nil
	}
	if info.Cluster.Leader == "" {
		return nil, nil, fmt.Errorf("stream %s has no leader now: %w", info.Config.Name, jetstream.ErrNoStreamResponse)
	}
	holders = []string{info.Cluster.Leader}
	for _, r := range info.Cluster.Replicas {
		if r.Offline {
			away = append(away, r.Name)
		} else {
			holders = append(holders, r.Name)
		}
	}
	slices.Sort(holders) // the leader lists them in any order
	slices.Sort(away)
	return holders, away, nil
}

// durabilityClass computes the class from the settings of the servers that hold the stream. away
// are further ones that hold it and acknowledge nothing now.
func durabilityClass(holders, away []string, syncs map[string]syncSetting, err error) (DurabilityClass, string, error) {
	class, weakest, all := ClassFsync, ClassInterval, len(holders)+len(away)
	if all > 1 {
		weakest = ClassReplicated
	}
	var detail []string
	for _, h := range holders {
		s, known := syncs[h]
		if !known {
			class, away = weakest, append(away, h)
			detail = append(detail, h+": no answer")
			continue
		}
		if s.Always {
			detail = append(detail, h+": sync always")
			continue
		}
		class = weakest
		detail = append(detail, fmt.Sprintf("%s: sync every %v", h, s.Interval))
	}
	switch {
	case err != nil:
		class = weakest
	case len(away) == all:
		err = fmt.Errorf("no answer from server(s) %s on %s: does the configuration export it from the system account?",
			strings.Join(away, ", "), durabilitySubject)
	case len(away) > 0:
		err = &AwayError{away, all}
	}
	return class, fmt.Sprintf("%d server(s); %s", all, strings.Join(detail, ", ")), err
}

// StoreUse is what a server stores, and the most that it takes (max_file_store). At the limit it
// refuses every message, whatever its disk has room for. Both are in bytes.
type StoreUse struct{ Used, Limit int64 }

// StoreUses returns the StoreUse of the servers that hold a stream and answer, by name.
func StoreUses(ctx context.Context, nc *nats.Conn, stream string) (map[string]StoreUse, error) {
	info, err := streamInfo(ctx, nc, stream)
	if err != nil {
		return nil, err
	}
	holders, _, err := streamHolders(nc, info)
	if err != nil {
		return nil, err
	}
	answers, err := askServers(ctx, nc, holders)
	uses := map[string]StoreUse{}
	for _, h := range holders {
		if a, answered := answers[h]; answered {
			uses[h] = StoreUse{a.Stored, a.Config.MaxStorage}
		}
	}
	return uses, err
}

// serverState is the part of a server's answer about JetStream that is read here.
type serverState struct {
	Stored int64 `json:"storage"`
	Config *struct {
		syncSetting
		MaxStorage int64 `json:"max_storage"`
	} `json:"config"`
}

type syncSetting struct {
	Always   bool          `json:"sync_always"`
	Interval time.Duration `json:"sync_interval"`
}

// syncSettings returns the sync settings of the wanted servers that answer.
func syncSettings(ctx context.Context, nc *nats.Conn, wanted []string) (map[string]syncSetting, error) {
	answers, err := askServers(ctx, nc, wanted)
	syncs := map[string]syncSetting{}
	for name, a := range answers {
		syncs[name] = a.Config.syncSetting
	}
	return syncs, err
}

// askServers asks all servers and returns when the wanted ones have answered, or when some have not
// in time. Every answer has a Config.
func askServers(ctx context.Context, nc *nats.Conn, wanted []string) (map[string]serverState, error) {
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
	found := map[string]serverState{}
	for missing := len(wanted); missing > 0; {
		msg, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return found, nil // the caller sees who is missing
		}
		var resp struct {
			Server struct {
				Name string `json:"name"`
			} `json:"server"`
			Data serverState `json:"data"`
		}
		if json.Unmarshal(msg.Data, &resp) != nil || resp.Data.Config == nil {
			continue
		}
		if _, twice := found[resp.Server.Name]; twice {
			continue
		}
		found[resp.Server.Name] = resp.Data
		if slices.Contains(wanted, resp.Server.Name) {
			missing--
		}
	}
	return found, nil
}
