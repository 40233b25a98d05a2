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
// receipt is an empty file, which exactly one process creates; its modification time is the expiry.
// The file system must be a local one.
type Directory struct {
	path string

	mu    sync.Mutex
	swept time.Time // when files of expired receipts were last removed
}

const (
	sweepEvery = time.Minute
	// sweepAge is how long after the expiry a file is removed: a clock that is ahead by less forgets
	// nothing.
	sweepAge = receipt.MaxLifetime + time.Hour
	// forgottenFile has the latest removed expiry as its modification time. Receipts that expire
	// earlier count as used: the clock went back.
	forgottenFile = "forgotten"
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
	err := d.create(u)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	// Looked at after the creation: what another process removes, it notes before.
	forgotten, lookErr := d.forgotten()
	if err = errors.Join(err, lookErr); err != nil {
		return false, fmt.Errorf("guard: the memory of used receipts: %w", err)
	}
	return u.Expires.After(forgotten), nil
}

// create makes the file of a use. Its time is rounded up: some file systems store whole seconds.
func (d *Directory) create(u Use) error {
	path := filepath.Join(d.path, u.ID)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = errors.Join(f.Close(), os.Chtimes(path, time.Time{}, u.Expires.Truncate(time.Second).Add(time.Second)))
	dir, openErr := os.Open(d.path)
	if openErr == nil {
		openErr = errors.Join(dir.Sync(), dir.Close())
	}
	return errors.Join(err, openErr)
}

// forgotten is the latest expiry of a removed file, zero if none was removed.
func (d *Directory) forgotten() (time.Time, error) {
	info, err := os.Stat(filepath.Join(d.path, forgottenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

func (d *Directory) setForgotten(expiry time.Time) error {
	path := filepath.Join(d.path, forgottenFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(os.Chtimes(path, time.Time{}, expiry), f.Sync(), f.Close())
}

// removeExpired removes, from time to time, the files of expired receipts. What it cannot do now it does later.
func (d *Directory) removeExpired(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since := now.Sub(d.swept); since >= 0 && since < sweepEvery {
		return
	}
	d.swept = now
	entries, err := os.ReadDir(d.path)
	latest, lookErr := d.forgotten()
	if errors.Join(err, lookErr) != nil {
		return // MarkUsed reports the error
	}
	var expired []string
	for _, e := range entries {
		if info, err := e.Info(); err == nil && len(e.Name()) == 2*sha256.Size && now.Sub(info.ModTime()) > sweepAge {
			expired = append(expired, e.Name())
			if info.ModTime().After(latest) {
				latest = info.ModTime()
			}
		}
	}
	if len(expired) == 0 || d.setForgotten(latest) != nil {
		return
	}
	for _, name := range expired {
		_ = os.Remove(filepath.Join(d.path, name))
	}
}
