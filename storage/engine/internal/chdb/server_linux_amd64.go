package chdb

import (
	"bytes"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// addrSetType is where the command line names the type of its program to ClickHouse
// (Context::setApplicationType), as LOCAL, the value 2.
const addrSetType = 0x0f1004b1

var (
	setTypeLocal  = []byte{0xbe, 0x02, 0, 0, 0, 0xe8, 0x05, 0x9c, 0x08, 0x05} // mov esi, 2; call
	setTypeServer = []byte{0xbe, 0x00, 0, 0, 0, 0xe8, 0x05, 0x9c, 0x08, 0x05} // mov esi, 0; call
)

// actAsServer makes the engine guard files as a server does.
//
// `clickhouse local` is made for a single user, who may read all files of the process: the
// function file() and others need no grant then and open every path. actAsServer changes one
// byte, so that the engine takes itself for a server: file() needs a grant, and paths outside
// of the folder for users' files are refused (engine.TestFilesAreClosed).
func actAsServer(base uintptr) error {
	addr := base + addrSetType
	code := unsafe.Slice((*byte)(unsafe.Pointer(readWord(addr))), len(setTypeLocal))
	if !bytes.Equal(code, setTypeLocal) {
		return fmt.Errorf("%w: the type of program is not set at %#x", errLayout, addrSetType)
	}
	page := unsafe.Slice((*byte)(unsafe.Pointer(readWord(addr&^pageMask))), pageMask+1)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		return fmt.Errorf("making the engine's code writable, to close files to its users: %w", err)
	}
	copy(code, setTypeServer)
	if err := unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return fmt.Errorf("making the engine's code executable again: %w", err)
	}
	return nil
}
