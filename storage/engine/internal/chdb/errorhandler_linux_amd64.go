package chdb

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Addresses in the pinned build of libchdb (see engine.LibrarySHA256), relative to its load
// address, like those in writes_linux_amd64.go and server_linux_amd64.go. They are used only after
// the library's digest was checked, and the functions that use them check the memory there first.
const (
	addrCmdline      = 0x0f211700 // chdb_query_cmdline, to find the base
	addrHandler      = 0x229677a8 // Poco::ErrorHandler::_pHandler
	addrKilling      = 0x2277a940 // LocalServer's static KillingErrorHandler (one vtable pointer)
	addrKillingGuard = 0x2277a948 // its initialisation guard
	pageMask         = 0xfff
)

// errLayout says that the library does not have the layout of the pinned build.
var errLayout = errors.New("the engine library is not laid out as its pinned build")

// surviveBadClients keeps a failed connection from ending the engine.
//
// `clickhouse local` is made for a single user: outside its interactive mode it installs an
// error handler that calls std::terminate on every exception that leaves a connection's
// thread. With the listener open, any process on this machine could end the engine with one
// wrong password, one unknown database or one connection reset. A server's handler drops the
// connection instead. The killing handler is a function-local static without fields.
// surviveBadClients marks it as initialised before the engine does, with the vtable of
// Poco's own default handler, which does nothing.
func surviveBadClients(base uintptr) error {
	handler, killing, guard := readWord(base+addrHandler), readWord(base+addrKilling), readWord(base+addrKillingGuard)
	if *handler == 0 || *killing != 0 || *guard != 0 {
		return errLayout
	}
	*killing = *readWord(*handler)
	*(*byte)(unsafe.Pointer(guard)) = 1
	return nil
}

// baseOf is the load address of the library.
func baseOf(handle uintptr) (uintptr, error) {
	entry, err := purego.Dlsym(handle, "chdb_query_cmdline")
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errLayout, err)
	}
	base := entry - addrCmdline
	if base&pageMask != 0 {
		return 0, errLayout
	}
	return base, nil
}

// readWord returns the machine word at an address inside the loaded library. The garbage
// collector neither moves nor frees it.
func readWord(addr uintptr) *uintptr {
	return *(**uintptr)(unsafe.Pointer(&addr))
}
