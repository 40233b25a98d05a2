package mcpgate

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/mcp"
)

// PinFile has the accepted definitions of one server's tools.
type PinFile struct {
	path string
	own  bool // the gate adds tools that it sees for the first time

	caller string // whose pins they are; "" without callers
}

// OpenPins names the pins of a server: those in the user's configuration directory, where the first
// definition of a tool is accepted; or path, which the gate only reads, and where nothing else is.
func OpenPins(server, path string) (PinFile, error) {
	if path != "" {
		return PinFile{path: path}, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return PinFile{}, fmt.Errorf("finding the user's configuration directory: %w", err)
	}
	return PinFile{path: filepath.Join(dir, "countersign", "mcp-pins", server+".json"), own: true}, nil
}

// OpenCallerPins names the pins that a caller of Serve has for a server. With dir, they are those of
// dir/SERVER.json, which the gate only reads.
func OpenCallerPins(server, caller, dir string) (PinFile, error) {
	if dir != "" {
		return PinFile{path: filepath.Join(dir, server+".json")}, nil
	}
	f, err := OpenPins(server, "")
	if err != nil {
		return PinFile{}, err
	}
	f.path, f.caller = filepath.Join(filepath.Dir(f.path), "callers", callerDir(caller), server+".json"), caller
	return f, nil
}

var plainCaller = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// callerDir is a caller's name as one of a directory.
func callerDir(caller string) string {
	if plainCaller.MatchString(caller) {
		return caller
	}
	return fmt.Sprintf("~%x", sha256.Sum256([]byte(caller)))
}

// Path is where the pins are.
func (f PinFile) Path() string { return f.path }

// hint is the command that shows what has changed.
func (f PinFile) hint(server string) string {
	text := "countersign mcp pins show " + server
	switch {
	case !f.own:
		text += " --pin " + f.path
	case f.caller != "":
		text += " --caller " + f.caller
	}
	return text
}

// Read reads the pins. A file that is not there has none.
func (f PinFile) Read() (mcp.Pins, error) {
	p := mcp.Pins{}
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) && f.own {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the accepted definitions: %w", err)
	}
	if err := json.Unmarshal(b, &p); err != nil || p == nil {
		return nil, fmt.Errorf("%s has no accepted definitions that can be read: mend or remove it", f.path)
	}
	return p, nil
}

// Edit changes the pins, while no other process does.
func (f PinFile) Edit(edit func(mcp.Pins) (bool, error)) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	lock, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	p, err := f.Read()
	if err != nil {
		return err
	}
	if edited, err := edit(p); err != nil || !edited {
		return err
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(f.path, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	return nil
}

// catalogue knows the tools that a server has listed in this session.
type catalogue struct {
	server string
	pins   PinFile
	gate   *Gate

	mu        sync.Mutex
	accepted  map[string]mcp.Tool
	changed   map[string]change // what is offered and not accepted, by tool
	reporting bool              // an event about changes is on its way
}

// change is a definition that is not the accepted one.
type change struct {
	accepted string // its digest; "" if there is none
	offered  string
	reported bool // on record
}

func newCatalogue(server string, pins PinFile, g *Gate) *catalogue {
	return &catalogue{server: server, pins: pins, gate: g, accepted: map[string]mcp.Tool{}, changed: map[string]change{}}
}

// add takes in the tools of a listing and returns what may be shown of it, nil for all of it. A changed
// definition is not shown: its text may be what it was changed for.
func (c *catalogue) add(result json.RawMessage) (json.RawMessage, error) {
	l, err := mcp.ParseListing(result)
	if err != nil {
		return nil, err
	}
	var compared mcp.Comparison
	before := map[string]string{}
	compare := func(p mcp.Pins) (edited bool, _ error) {
		for name, pin := range p {
			before[name] = pin.Digest
		}
		compared = p.Compare(l.Tools, c.pins.own)
		return compared.Edited, nil
	}
	if c.pins.own {
		err = c.pins.Edit(compare)
	} else {
		var p mcp.Pins
		if p, err = c.pins.Read(); err == nil {
			_, err = compare(p)
		}
	}
	if err != nil {
		return nil, err
	}
	if l.Unfit > 0 {
		c.gate.log.print(fmt.Sprintf("%s lists %d tools whose definitions cannot be used: they are left out", c.server, l.Unfit))
	}
	if n := len(compared.NoRoom); n > 0 {
		c.gate.log.print(fmt.Sprintf("%s lists %d new tools for which %s has no room: they are left out", c.server, n, c.pins.path))
	}
	c.set(l, compared, before)
	return l.Without(func(t mcp.Tool) bool { _, ok := c.find(t.Name); return ok })
}

// set remembers what was listed, and reports what has changed. before has the accepted digests.
func (c *catalogue) set(l mcp.Listing, compared mcp.Comparison, before map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range l.Tools {
		c.accepted[t.Name] = t
	}
	for name := range l.Unclear { // what the server means by it now is not known
		delete(c.accepted, name)
	}
	for _, t := range compared.NoRoom {
		delete(c.accepted, t.Name)
	}
	var news []string
	for _, t := range compared.Changed {
		delete(c.accepted, t.Name)
		old, known := c.changed[t.Name]
		if old.offered == t.Digest || !known && len(c.changed) >= mcp.MaxPins {
			continue
		}
		c.changed[t.Name] = change{accepted: before[t.Name], offered: t.Digest}
		news = append(news, t.Name)
	}
	for _, t := range l.Tools {
		if _, ok := c.accepted[t.Name]; ok {
			delete(c.changed, t.Name)
		}
	}
	if len(news) > 0 {
		c.gate.log.print(fmt.Sprintf("%d tools of %s are not as they were accepted, %s: their calls are refused (%s)",
			len(news), c.server, strings.Join(news[:min(len(news), 5)], ", "), c.pins.hint(c.server)))
	}
	c.report()
}

// report reports, in the background, the changes that are not on record, in one event. While one is on
// its way there is no other: a server that changes its tools all the time delays no other report. What
// could not be stored is tried again with the next listing or call. The caller holds c.mu.
func (c *catalogue) report() {
	var changes []mcp.Change
	for name, d := range c.changed {
		if d.accepted != "" && !d.reported {
			changes = append(changes, mcp.Change{Tool: name, Accepted: d.accepted, Offered: d.offered})
		}
	}
	if c.reporting || len(changes) == 0 {
		return
	}
	c.reporting = true
	slices.SortFunc(changes, func(a, b mcp.Change) int { return strings.Compare(a.Tool, b.Tool) })
	c.gate.reportChanges(c.server, changes, func(stored bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.reporting = false
		if !stored {
			return
		}
		for _, done := range changes {
			if d := c.changed[done.Tool]; d.offered == done.Offered {
				d.reported = true
				c.changed[done.Tool] = d
			}
		}
		c.report() // what has changed since
	})
}

// find returns an accepted tool that the server has listed.
func (c *catalogue) find(name string) (mcp.Tool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.accepted[name]
	return t, ok
}

// check says why a call of a tool cannot be admitted; it completes the call if it can.
func (c *catalogue) check(call *mcp.Call) *mcp.Refusal {
	t, ok := c.find(call.Name)
	if ok && (call.Tool == nil || call.Tool.Digest == t.Digest) {
		call.Tool = &t
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, changed := c.changed[call.Name]; ok || changed {
		c.report()
		return refuse("definition_changed", fmt.Errorf("the definition of this tool is not the one that was accepted; a person must accept it (%s)", c.pins.hint(c.server)))
	}
	return refuse("not_listed", errors.New("its server has not listed this tool in this session"))
}
