// Package spending reads what the programs of a pipeline have used: processor time, memory, and the sizes of
// log and evidence. Begin with ReadSpent.
package spending

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countersign-dev/countersign/internal/cli/target"
	"github.com/countersign-dev/countersign/streams"
)

// readTimeout bounds one reading: an overloaded server answers late.
const readTimeout = 30 * time.Second

// Generator is the name of this process in the figures. It supervises the others as well.
const Generator = "generator"

// Spent is what the pipeline has used so far.
type Spent struct {
	CPU           map[string]time.Duration // by process
	LogLast       uint64                   // sequence
	LogBytes      uint64
	Engine        map[string]uint64 // the engine's counters
	EvidenceBytes uint64            // of all active parts
}

// engineCounters are the counters of system.events that are read: rows and inserts, merges, and
// the calls of fsync for files and directories.
var engineCounters = []string{"InsertedRows", "InsertQuery", "MergedRows", "FileSync", "DirectorySync"}

// Since subtracts what had been used at begun.
func (s Spent) Since(begun Spent) Spent {
	d := Spent{CPU: map[string]time.Duration{}, Engine: map[string]uint64{}, LogLast: s.LogLast - begun.LogLast,
		LogBytes: s.LogBytes - begun.LogBytes, EvidenceBytes: s.EvidenceBytes - min(s.EvidenceBytes, begun.EvidenceBytes)}
	for name, t := range s.CPU {
		d.CPU[name] = t - begun.CPU[name]
	}
	for name, n := range s.Engine {
		d.Engine[name] = n - begun.Engine[name]
	}
	return d
}

// ReadSpent reads what a running pipeline has used. An error names what could not be read.
func ReadSpent(ctx context.Context, ready target.Ready, js jetstream.JetStream, conn clickhouse.Conn) (s Spent, err error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	st, err := js.Stream(ctx, streams.DefaultShard)
	if err != nil {
		return s, fmt.Errorf("reading the size of the log: %w", err)
	}
	s.LogLast, s.LogBytes = st.CachedInfo().State.LastSeq, st.CachedInfo().State.Bytes
	if s.Engine, err = readEngineCounters(ctx, conn); err != nil {
		return s, fmt.Errorf("reading the engine's counters: %w", err)
	}
	err = conn.QueryRow(ctx, "SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND database = currentDatabase()").Scan(&s.EvidenceBytes)
	if err != nil {
		return s, fmt.Errorf("reading the size of the evidence: %w", err)
	}
	s.CPU, err = ProcessorTimes(ready.PIDs)
	return s, err
}

func readEngineCounters(ctx context.Context, conn clickhouse.Conn) (map[string]uint64, error) {
	rows, err := conn.Query(ctx, "SELECT event, value FROM system.events WHERE has(?, event)", engineCounters)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	out := map[string]uint64{}
	for rows.Next() {
		var name string
		var value uint64
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		out[name] = value
	}
	return out, rows.Err()
}

// ProcessorTimes is the processor time of named processes with their descendants. A descendant
// that is named itself counts for itself alone. This process is Generator.
func ProcessorTimes(pids map[string]int) (map[string]time.Duration, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	states := map[int]processState{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if p, ok := parseProcessState(string(text)); ok {
			states[pid] = p
		}
	}
	named := maps.Clone(pids)
	delete(named, "up")
	named[Generator] = os.Getpid()
	return sumByProcess(states, named)
}

// sumByProcess adds the time of every process to its nearest named ancestor, itself included.
func sumByProcess(states map[int]processState, named map[string]int) (map[string]time.Duration, error) {
	out, nameOf := map[string]time.Duration{}, map[int]string{}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, runs := states[named[name]]; !runs {
			return nil, fmt.Errorf("process %d, %s, does not run", named[name], name)
		}
		nameOf[named[name]], out[name] = name, 0
	}
	for pid, p := range states {
		for at := pid; at != 0; at = states[at].parent {
			if name, is := nameOf[at]; is {
				out[name] += p.used
				break
			}
		}
	}
	return out, nil
}
