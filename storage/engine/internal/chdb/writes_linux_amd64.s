#include "go_asm.h"
#include "textflag.h"

// What stands in for write, pwrite, fsync and fdatasync: C functions, called by
// the library's threads, of which Go knows nothing. They must not run Go code.
// The arguments are passed on in their registers.

DATA ·standIns+0(SB)/8, $standInWrite<>(SB)
DATA ·standIns+8(SB)/8, $standInPwrite<>(SB)
DATA ·standIns+16(SB)/8, $standInFsync<>(SB)
DATA ·standIns+24(SB)/8, $standInFdatasync<>(SB)
GLOBL ·standIns(SB), NOPTR, $32

#define STAND_IN(name, at) \
	TEXT name<>(SB), NOSPLIT|NOFRAME, $0 \
	MOVQ ·originals+at(SB), AX \
	JMP  orEnd<>(SB)

STAND_IN(standInWrite, 0)
STAND_IN(standInPwrite, 8)
STAND_IN(standInFsync, 16)
STAND_IN(standInFdatasync, 24)

// orEnd calls AX, and ends the process if that says -1 and errno that the file
// system did not take what it was given. The low half of AX tells: no call writes
// 4 GiB.
TEXT orEnd<>(SB), NOSPLIT|NOFRAME, $0
	SUBQ $24, SP // which aligns it, too
	MOVL DI, 16(SP)
	CALL AX
	CMPL AX, $-1
	JEQ  failed
	ADDQ $24, SP
	RET

failed:
	MOVQ AX, 8(SP)
	CMPL 16(SP), $2 // a terminal that went away is no disk
	JLE  giveBack
	MOVQ ·originals+32(SB), AX
	CALL AX
	MOVL (AX), DI
	CMPL DI, $5   // EIO
	JEQ  end
	CMPL DI, $27  // EFBIG
	JEQ  end
	CMPL DI, $28  // ENOSPC
	JEQ  end
	CMPL DI, $122 // EDQUOT
	JEQ  end

giveBack:
	MOVQ 8(SP), AX
	ADDQ $24, SP
	RET

end:
	MOVL DI, 16(SP)
	MOVL $1, AX // write
	MOVL $2, DI
	LEAQ ·lastWords(SB), SI
	MOVL $const_lastWordsSize, DX
	SYSCALL
	MOVL 16(SP), DI
	MOVL $231, AX // exit_group
	SYSCALL
	INT  $3
