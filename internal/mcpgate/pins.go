package mcpgate

import (
	"context"
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

	"github.com/countersign-dev/countersign/internal/atomicfile"
	"github.com/countersign-dev/countersign/internal/filelock"
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

// Edit changes the pins, while no other process does. It waits for listTime at most: a gate that is stopped may hold the
// lock, and the server's other answers wait meanwhile.
func (f PinFile) Edit(edit func(mcp.Pins) (bool, error)) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTime)
	defer cancel()
	lock, err := filelock.Wait(ctx, f.path+".lock", nil)
	if err != nil {
		return fmt.Errorf("writing the accepted definitions: %w", err)
	}
	defer lock.Close()
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

// catalogue knows the tools that a server has listed in one session.
type catalogue struct {
	server  string
	pins    PinFile
	gate    *Gate
	changes *changes

	mu       sync.Mutex
	accepted map[string]mcp.Tool // without the definitions, which may be large
	refused  map[string]bool     // what is offered and not accepted
	listed   bool                // there was a listing
}

// changes are the definitions that a server has offered to one caller and that are not the accepted ones.
// All sessions of the caller share them, so that a change is one event.
type changes struct {
	server string
	gate   *Gate

	mu        sync.Mutex
	changed   map[string]change // by tool
	reporting bool              // an event about changes is on its way
}

// change is a definition that is not the accepted one.
type change struct {
	accepted string // its digest; "" if there is none
	offered  string
	reported bool // on record
}

func newCatalogue(server string, pins PinFile, g *Gate) *catalogue {
	c := &catalogue{server: server, pins: pins, gate: g, changes: &changes{server: server, gate: g, changed: map[string]change{}}}
	return c.ofSession()
}

// ofSession is the catalogue of another session of the same caller: nothing is listed in it.
func (c *catalogue) ofSession() *catalogue {
	return &catalogue{server: c.server, pins: c.pins, gate: c.gate, changes: c.changes, accepted: map[string]mcp.Tool{}, refused: map[string]bool{}}
}

// errPins is what a client is told of pins that cannot be used. The log says why: the paths are the gate's.
var errPins = errors.New("the accepted definitions cannot be read or written: standard error of the gate says why")

// add takes in the tools of a listing and returns what may be shown of it, nil for all of it. A changed
// definition is not shown: its text may be what it was changed for.
func (c *catalogue) add(result json.RawMessage) (json.RawMessage, error) {
	l, err := mcp.ParseListing(result)
	if err != nil {
		return nil, err
	}
	compared, before, err := c.compare(l)
	if err != nil {
		c.gate.log.print(err.Error())
		return nil, errPins
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

// compare holds a listing against the pins. before has the accepted digests.
func (c *catalogue) compare(l mcp.Listing) (compared mcp.Comparison, before map[string]string, err error) {
	before = map[string]string{}
	compare := func(p mcp.Pins) (edited bool, _ error) {
		for name, pin := range p {
			before[name] = pin.Digest
		}
		compared = p.Compare(l.Tools, c.pins.own)
		return compared.Edited, nil
	}
	if c.pins.own {
		err = c.pins.Edit(compare)
		return compared, before, err
	}
	p, err := c.pins.Read()
	if err == nil {
		_, err = compare(p)
	}
	return compared, before, err
}

// set remembers what was listed, and reports what has changed. before has the accepted digests.
func (c *catalogue) set(l mcp.Listing, compared mcp.Comparison, before map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.listed = true
	for _, t := range l.Tools {
		c.accepted[t.Name] = t.WithoutDefinition()
		delete(c.refused, t.Name)
	}
	for name := range l.Unclear { // what the server means by it now is not known
		delete(c.accepted, name)
	}
	for _, t := range compared.NoRoom {
		delete(c.accepted, t.Name)
	}
	for _, t := range compared.Changed {
		delete(c.accepted, t.Name)
		if len(c.refused) < mcp.MaxPins {
			c.refused[t.Name] = true
		}
	}
	var accepted []string
	for _, t := range l.Tools {
		if _, ok := c.accepted[t.Name]; ok {
			accepted = append(accepted, t.Name)
		}
	}
	if news := c.changes.note(compared.Changed, accepted, before); len(news) > 0 {
		c.gate.log.print(fmt.Sprintf("%d tools of %s are not as they were accepted, %s: their calls are refused (%s)",
			len(news), c.server, strings.Join(news[:min(len(news), 5)], ", "), c.pins.hint(c.server)))
	}
}

// isListed reports whether there was a listing.
func (c *catalogue) isListed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.listed
}

// find returns an accepted tool that the server has listed.
func (c *catalogue) find(name string) (mcp.Tool, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t, ok := c.accepted[name]
	return t, ok
}

// check says why a call of a tool cannot be admitted; it completes the call if it can. What a client is
// told names no file of the gate.
func (c *catalogue) check(call *mcp.Call) *mcp.Refusal {
	t, ok := c.find(call.Name)
	if ok && (call.Tool == nil || call.Tool.Digest == t.Digest) {
		call.Tool = &t
		return nil
	}
	c.mu.Lock()
	changed := ok || c.refused[call.Name]
	c.mu.Unlock()
	if changed {
		c.changes.report()
		return refuse("definition_changed", fmt.Errorf("the definition of this tool is not the one that was accepted; a person must accept it (countersign mcp pins show %s)", c.server))
	}
	return refuse("not_listed", errors.New("its server has not listed this tool in this session"))
}

// note remembers the tools that are not as they were accepted, and forgets those that are. It returns the
// names of new changes. before has the accepted digests.
func (h *changes) note(offered []mcp.Tool, accepted []string, before map[string]string) (news []string) {
	h.mu.Lock()
	for _, t := range offered {
		old, known := h.changed[t.Name]
		if old.offered == t.Digest || !known && len(h.changed) >= mcp.MaxPins {
			continue
		}
		h.changed[t.Name] = change{accepted: before[t.Name], offered: t.Digest}
		news = append(news, t.Name)
	}
	for _, name := range accepted {
		delete(h.changed, name)
	}
	h.mu.Unlock()
	h.report()
	return news
}

// report reports, in the background, the changes that are not on record, in one event. While one is on
// its way there is no other: a server that changes its tools all the time delays no other report. What
// could not be stored is tried again with the next listing or call.
func (h *changes) report() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []mcp.Change
	for name, d := range h.changed {
		if d.accepted != "" && !d.reported {
			list = append(list, mcp.Change{Tool: name, Accepted: d.accepted, Offered: d.offered})
		}
	}
	if h.reporting || len(list) == 0 {
		return
	}
	h.reporting = true
	slices.SortFunc(list, func(a, b mcp.Change) int { return strings.Compare(a.Tool, b.Tool) })
	h.gate.reportChanges(h.server, list, func(stored bool) { h.reported(list, stored) })
}

// reported notes what is on record now, and reports what has changed since.
func (h *changes) reported(list []mcp.Change, stored bool) {
	h.mu.Lock()
	h.reporting = false
	for _, done := range list {
		if d := h.changed[done.Tool]; stored && d.offered == done.Offered {
			d.reported = true
			h.changed[done.Tool] = d
		}
	}
	h.mu.Unlock()
	if stored {
		h.report()
	}
}
