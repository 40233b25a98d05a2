// Package chdb binds the one function of libchdb that Countersign needs: the command line of
// `clickhouse local`, which can open ClickHouse's own native listener. Only the engine's
// child process of package engine uses it, and that process does nothing else, because
// libchdb cannot be unloaded and its command line works once per process. Load opens the
// library and patches it; Run runs the engine.
package chdb

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// sigactionSize is more than sizeof(struct sigaction) of glibc on amd64 (152).
const sigactionSize = 256

// kept lists the signals that Load leaves with the dispositions of the Go runtime: those that
// libchdb installs handlers for, and those that Go relies on. libchdb takes SIGSEGV away from
// Go, and a nil dereference then hangs instead of panicking.
var kept = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT,
	syscall.SIGBUS, syscall.SIGFPE, syscall.SIGUSR1, syscall.SIGSEGV, syscall.SIGUSR2, syscall.SIGPIPE,
	syscall.SIGALRM, syscall.SIGTERM, syscall.SIGCHLD, syscall.SIGTSTP, syscall.SIGURG, syscall.SIGPROF,
	syscall.SIGSYS,
}

// Library is a loaded libchdb.
type Library struct {
	cmdline   func(argc int32, argv unsafe.Pointer) unsafe.Pointer
	destroy   func(result unsafe.Pointer)
	resultErr func(result unsafe.Pointer) unsafe.Pointer
	sigaction func(sig int32, act, old unsafe.Pointer) int32
}

// Load opens the shared library at path. It turns the library's signal handlers off and
// restores the process's signal dispositions.
func Load(path string) (*Library, error) {
	libc, err := purego.Dlopen("libc.so.6", purego.RTLD_NOW)
	if err != nil {
		return nil, fmt.Errorf("opening glibc: %w", err)
	}
	l := &Library{}
	if err := registerSymbols(libc, "sigaction", &l.sigaction); err != nil {
		return nil, err
	}
	var handle uintptr
	l.keepSignals(func() { handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL) })
	if err != nil {
		return nil, fmt.Errorf("opening the engine: %w", err)
	}
	var handlers func(enabled int32)
	for name, f := range map[string]any{
		"chdb_query_cmdline":               &l.cmdline,
		"chdb_destroy_query_result":        &l.destroy,
		"chdb_result_error":                &l.resultErr,
		"chdb_set_signal_handlers_enabled": &handlers,
	} {
		if err := registerSymbols(handle, name, f); err != nil {
			return nil, err
		}
	}
	l.keepSignals(func() { handlers(0) })
	base, err := baseOf(handle)
	if err != nil {
		return nil, err
	}
	if err := surviveBadClients(base); err != nil {
		return nil, err
	}
	if err := actAsServer(base); err != nil {
		return nil, err
	}
	if err := endAtFailedWrite(libc, base); err != nil {
		return nil, err
	}
	return l, nil
}

func registerSymbols(handle uintptr, name string, f any) error {
	sym, err := purego.Dlsym(handle, name)
	if err != nil {
		return fmt.Errorf("the engine library lacks %s: %w", name, err)
	}
	purego.RegisterFunc(f, sym)
	return nil
}

// keepSignals runs f and then restores the dispositions of the signals in kept.
func (l *Library) keepSignals(f func()) {
	saved := make([][sigactionSize]byte, len(kept))
	for i, s := range kept {
		l.sigaction(int32(s), nil, unsafe.Pointer(&saved[i][0]))
	}
	f()
	for i, s := range kept {
		l.sigaction(int32(s), unsafe.Pointer(&saved[i][0]), nil)
	}
}

// Run runs `clickhouse local` with args (args[0] is the program's name) and returns when its
// last query ends. It may be called once.
func (l *Library) Run(args ...string) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	argv := make([]*byte, len(args)+1)
	for i, a := range args {
		b, err := syscall.BytePtrFromString(a)
		if err != nil {
			return fmt.Errorf("engine argument %d: %w", i, err)
		}
		pin.Pin(b)
		argv[i] = b
	}
	pin.Pin(&argv[0])
	r := l.cmdline(int32(len(args)), unsafe.Pointer(&argv[0]))
	if r == nil {
		return errors.New("the engine gave no result")
	}
	defer l.destroy(r)
	if msg := copyCString(l.resultErr(r)); msg != "" {
		return errors.New(msg)
	}
	return nil
}

// copyCString copies a NUL-terminated string.
func copyCString(p unsafe.Pointer) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
