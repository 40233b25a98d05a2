package hookgate

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/hook"
	"github.com/countersign-dev/countersign/internal/gateclient"
	"github.com/countersign-dev/countersign/internal/owner"
)

// calls remembers, across the processes of a gate, the calls that cannot be told apart by what the
// agent gives: those without an id, and those that wait for a person and are repeated. One file per
// session, tool and arguments.
type calls struct {
	dir    string
	opened func() // for tests: called between the opening of a file and its lock
}

// sameCall is the content of such a file.
type sameCall struct {
	Waiting *waiting   `json:"waiting,omitempty"` // the call that waits for a person
	Open    []openCall `json:"open,omitempty"`    // those that may run and have not been reported
}

// waiting is a call that was refused until a person has decided. Its repetition sends the same event.
type waiting struct {
	Event    json.RawMessage `json:"event"`
	CallID   string          `json:"call_id"`
	Workflow string          `json:"workflow"`
	Until    time.Time       `json:"until"`
	By       *owner.Owner    `json:"by,omitempty"` // the gate that waits; while it runs, an identical call is another one
}

// openCall is an allowed call: the id that the agent uses, the one that was admitted, and the approval.
type openCall struct {
	Agent    string        `json:"agent,omitempty"`
	Admitted string        `json:"admitted"`
	Approval hook.Approval `json:"approval,omitzero"`
}

// CallsDir is where the gate remembers calls, in the user's state directory. The files of calls that wait for a
// person have their arguments in the clear.
func CallsDir() (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "countersign", "hook"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's home: %w", err)
	}
	return filepath.Join(home, ".local", "state", "countersign", "hook"), nil
}

// sameCallKey names the calls of one session, tool and arguments. The arguments must be strict JSON:
// two readers of others could run different calls.
func sameCallKey(agent string, e hook.Event) (string, error) {
	if _, err := strictjson.ParseObject(e.Input, strictjson.DefaultLimits); err != nil {
		return "", fmt.Errorf("the arguments: %w", err)
	}
	canonical, err := strictjson.CanonicalBytes(e.Input)
	if err != nil {
		return "", fmt.Errorf("the arguments: %w", err)
	}
	h := sha256.New()
	for _, part := range []string{agent, e.Session, e.Worker, e.Tool, string(canonical)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// change reads the file of a key, lets edit change it and writes it, while no other process does.
func (c calls) change(key string, now time.Time, edit func(*sameCall)) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("the memory of calls: %w", err)
	}
	f, err := c.lock(key, os.O_CREATE|os.O_RDWR, syscall.LOCK_EX)
	if err != nil {
		return fmt.Errorf("the memory of calls: %w", err)
	}
	defer f.Close()
	var s sameCall
	if err := json.NewDecoder(f).Decode(&s); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("the memory of calls: %s is damaged: remove it", f.Name())
	}
	if s.Waiting != nil && now.After(s.Waiting.Until) {
		s.Waiting = nil
	}
	edit(&s)
	b, err := hook.Encode(s) // the waiting event keeps its bytes
	if err != nil {
		return err
	}
	if err := overwrite(f, b); err != nil {
		return fmt.Errorf("the memory of calls: %w", err)
	}
	return nil
}

// overwrite replaces the value in f. What needs room on the disk is written first, behind the old value, as what
// follows a value is not read: without room, or if the process ends before the rest, the file has the old value.
func overwrite(f *os.File, value []byte) error {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	room := value[:min(size, int64(len(value)))]
	if _, err := f.WriteAt(value[len(room):], size); err != nil {
		return errors.Join(err, f.Truncate(size))
	}
	if _, err := f.WriteAt(room, 0); err != nil {
		return err
	}
	return f.Truncate(int64(len(value)))
}

// lock opens the file of a key and locks it. Another process may have removed the file in between: no process would
// read what is written to it, so the key's new file is opened.
func (c calls) lock(key string, flag, how int) (*os.File, error) {
	path := filepath.Join(c.dir, key)
	for {
		f, err := os.OpenFile(path, flag, 0o600)
		if err != nil {
			return nil, err
		}
		if c.opened != nil {
			c.opened()
		}
		if err := syscall.Flock(int(f.Fd()), how); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if current, err := os.Stat(path); err == nil && os.SameFile(locked, current) {
			return f, nil
		}
		f.Close()
	}
}

// decided ends the wait of a call, unless an identical one has begun to wait since.
func (s *sameCall) decided(call waiting) {
	if s.Waiting != nil && s.Waiting.Workflow == call.Workflow {
		s.Waiting = nil
	}
}

// take removes the open call that an agent's report is about and returns it. Of calls without an id that is the newest:
// an older one may have ended without a report.
func (s *sameCall) take(agentID string) openCall {
	for i, o := range slices.Backward(s.Open) {
		if o.Agent == agentID {
			s.Open = append(s.Open[:i:i], s.Open[i+1:]...)
			return o
		}
	}
	return openCall{}
}

// forgetOld removes files of calls that were not touched for long.
func (c calls) forgetOld(now time.Time) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return // nothing is remembered
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && isOld(info, now) {
			c.forgetIfOld(e.Name(), now)
		}
	}
}

// forgetIfOld removes the file of a key, unless another process uses it, or has used it meanwhile.
func (c calls) forgetIfOld(key string, now time.Time) {
	f, err := c.lock(key, os.O_RDWR, syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && isOld(info, now) {
		_ = os.Remove(f.Name()) // it is tried again
	}
}

func isOld(info os.FileInfo, now time.Time) bool {
	return now.Sub(info.ModTime()) > gateclient.KeepCalls
}

// has reports whether anything is remembered of a key.
func (c calls) has(key string) bool {
	_, err := os.Stat(filepath.Join(c.dir, key))
	return err == nil
}
