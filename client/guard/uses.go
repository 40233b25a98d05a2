package guard

import (
	"container/heap"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/countersign-dev/countersign/admission/receipt"
)

// UseStore remembers used receipts. Executors that may get the same receipt must share one
// store: one process does not see the memory of another. A suitable store is a key-value bucket
// with a Create that fails if the key exists, or a table with a unique key.
type UseStore interface {
	// MarkUsed marks a receipt as used and reports whether this was its first use: of all calls
	// for the same receipt, concurrent or not, exactly one returns true. The store must
	// remember the use until Expires, also across its restart. An error means that the use is
	// unknown, and the call does not run.
	MarkUsed(ctx context.Context, u Use) (bool, error)
}

// Use is the use of one receipt.
type Use struct {
	ID      string    // the same for receipts of the same allowance, and for no others; 64 hexadecimal digits
	Expires time.Time // the use may be dropped then
	Now     time.Time // the executor's time
}

func useOf(c receipt.Claims, now time.Time) Use {
	sum := sha256.Sum256([]byte("countersign/use/v1\x00" + c.Nonce))
	u := Use{ID: hex.EncodeToString(sum[:]), Expires: c.ExpiresAt.Time, Now: now}
	if c.UseUntil.After(u.Expires) { // other receipts of the same allowance may live longer
		u.Expires = c.UseUntil.Time
	}
	return u
}

// DefaultUseLimit is the default number of receipts that a Memory remembers.
const DefaultUseLimit = 1 << 16

// ErrUsesFull reports that more receipts are in use than the memory holds. It never drops a
// receipt that is still valid, because that receipt could be used again.
var ErrUsesFull = errors.New("guard: too many receipts in use; wait until some expire, or raise the limit of the memory")

// Memory is a UseStore for one process. It is empty after a restart: a receipt that was used
// right before can then be used once more until it expires. It is safe for concurrent use.
type Memory struct {
	max int

	mu        sync.Mutex
	used      map[string]bool
	byExpiry  expiries
	forgotten time.Time // the latest dropped expiry
}

// NewMemory returns a Memory for up to limit valid receipts, about 200 bytes each;
// DefaultUseLimit if limit is not above zero.
func NewMemory(limit int) *Memory {
	if limit <= 0 {
		limit = DefaultUseLimit
	}
	return &Memory{max: limit, used: map[string]bool{}}
}

// MarkUsed implements UseStore.
func (m *Memory) MarkUsed(_ context.Context, u Use) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.byExpiry) > 0 && m.byExpiry[0].Expires.Before(u.Now) {
		old := heap.Pop(&m.byExpiry).(Use)
		delete(m.used, old.ID)
		if old.Expires.After(m.forgotten) {
			m.forgotten = old.Expires
		}
	}
	switch {
	case m.used[u.ID]:
		return false, nil
	case !u.Expires.After(m.forgotten):
		// The clock went back: this receipt may be among the dropped ones.
		return false, nil
	case len(m.used) >= m.max:
		return false, ErrUsesFull
	}
	m.used[u.ID] = true
	heap.Push(&m.byExpiry, u)
	return true, nil
}

// expiries is a heap with the earliest expiry on top.
type expiries []Use

func (h expiries) Len() int           { return len(h) }
func (h expiries) Less(i, j int) bool { return h[i].Expires.Before(h[j].Expires) }
func (h expiries) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *expiries) Push(x any)        { *h = append(*h, x.(Use)) }
func (h *expiries) Pop() any {
	last := len(*h) - 1
	u := (*h)[last]
	*h = (*h)[:last]
	return u
}

// Directory is a UseStore for all processes of one machine, across their restarts. Every used
// receipt is an empty file, which exactly one process creates. The file system must be a local
// one.
type Directory struct {
	path string

	mu        sync.Mutex
	nextSweep time.Time // when files of expired receipts are next removed
}

const (
	sweepEvery = time.Minute
	// sweepAge is the minimum age of a removed file: no receipt lives longer, and a clock that
	// went back does not make one valid again.
	sweepAge = receipt.MaxLifetime + time.Hour
)

// NewDirectory uses path and creates it if necessary. Only the executor may have access: a
// process that can remove files from it can have receipts used again.
func NewDirectory(path string) (*Directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("guard: the memory of used receipts: %w", err)
	}
	return &Directory{path: path}, nil
}

// MarkUsed implements UseStore. The file is on disk before it returns true.
func (d *Directory) MarkUsed(_ context.Context, u Use) (bool, error) {
	d.removeExpired(u.Now)
	f, err := os.OpenFile(filepath.Join(d.path, u.ID), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("guard: the memory of used receipts: %w", err)
	}
	err = f.Close()
	dir, openErr := os.Open(d.path)
	if openErr == nil {
		openErr = errors.Join(dir.Sync(), dir.Close())
	}
	if err = errors.Join(err, openErr); err != nil {
		return false, fmt.Errorf("guard: the memory of used receipts: %w", err)
	}
	return true, nil
}

// removeExpired removes, from time to time, the files of expired receipts.
func (d *Directory) removeExpired(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.Before(d.nextSweep) {
		return
	}
	d.nextSweep = now.Add(sweepEvery)
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return // MarkUsed reports the error
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && len(e.Name()) == 2*sha256.Size && now.Sub(info.ModTime()) > sweepAge {
			_ = os.Remove(filepath.Join(d.path, e.Name()))
		}
	}
}
