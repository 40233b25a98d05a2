package correlation

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/countersign-dev/countersign/correlation/internal/snapshot"
)

// ErrSnapshot is the error for a snapshot that another program or configuration made, or that
// is damaged. Only time is lost: the log can be replayed.
var ErrSnapshot = errors.New("the snapshot cannot be used")

// formatVersion must be raised when the meaning of the state changes, or the compacted form of
// calls. configDigest notices any other change of the state's form.
const formatVersion = 10

// snapshotState is the whole state of a Correlator. Its configuration and the keys of tenants
// and sessions are not part of it.
type snapshotState struct {
	Engine  *engine
	Keys    map[string]ed25519.PublicKey
	Retired map[string]bool
}

// Snapshot encodes the whole state. Restore makes a Correlator of it that continues as this
// one does. Equal states give equal bytes. It takes 0.4 to 0.9 s for every 100,000 remembered
// calls. A snapshot holds arguments of calls in the clear: keep it like the log.
func (c *Correlator) Snapshot() []byte {
	b, _ := c.SnapshotUnlessStopped(nil)
	return b
}

// SnapshotUnlessStopped is Snapshot for a caller that may have to interrupt it. stop, which
// may be nil, is called every few milliseconds. Once it returns true, the encoding ends and
// whole is false. The Correlator does not change in either case.
func (c *Correlator) SnapshotUnlessStopped(stop func() bool) (b []byte, whole bool) {
	if stop != nil && stop() { // before the buffer is made, which takes time as well
		return nil, false
	}
	c.engine.calls.compactCalls()
	made := c.engine.opts.configDigest()
	b, err := snapshot.Append(append(make([]byte, 0, c.snapshotSize()), made[:]...), &snapshotState{c.engine, c.keys, c.retiredKeys}, 3*c.engine.calls.callCount(), stop)
	return b, err == nil
}

// Typical sizes in a snapshot, in bytes: of a call, a session and an event id, with all that
// belongs to them. A high estimate costs nothing, as untouched memory is not allocated. A low
// one makes the buffer grow, which copies the snapshot when it is nearly done.
const (
	callSize    = 768
	sessionSize = 512
	eventSize   = 128
)

// snapshotSize estimates the bytes of a whole snapshot.
func (c *Correlator) snapshotSize() int {
	return c.engine.calls.snapshotSize() + c.engine.history.idCount()*eventSize
}

// Restore makes a Correlator from a snapshot. The caller MUST have verified that b is
// unchanged since Snapshot returned it. The options MUST be those of the Correlator that made
// it.
func Restore(o Options, b []byte) (*Correlator, error) {
	made := o.withDefaults().configDigest()
	if len(b) < len(made) || [sha256.Size]byte(b) != made {
		return nil, fmt.Errorf("%w: another version or configuration made it", ErrSnapshot)
	}
	s, err := snapshot.Read[snapshotState](b[len(made):])
	if err != nil || s.Engine == nil {
		return nil, errors.Join(ErrSnapshot, err)
	}
	c := New(o)
	s.Engine.configure(c.engine.opts)
	c.engine = s.Engine
	c.engine.recount()
	for kid, pub := range s.Keys {
		c.addKey(kid, pub)
	}
	for kid := range s.Retired {
		c.retiredKeys[kid] = true
	}
	c.decoder = c.NewDecoder()
	return c, nil
}

// recount rebuilds the counts that a snapshot does not hold.
func (e *engine) recount() {
	e.calls.recount()
	e.trackers.recount()
}

// configDigest differs between snapshots of different forms or configurations.
func (o Options) configDigest() [sha256.Size]byte {
	o.TenantKey, o.SessionSecret, o.KeyVoucher, o.RetireVoucher, o.Rules = nil, nil, nil, nil, nil
	return sha256.Sum256(fmt.Appendf(nil, "%d\n%+v\n%s", formatVersion, o, stateShape()))
}

// stateShape is computed once: it is constant, and takes longer than a small snapshot.
var stateShape = sync.OnceValue(func() string { return snapshot.Shape(reflect.TypeFor[snapshotState]()) })
