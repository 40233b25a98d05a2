package shares

import (
	"errors"
	"io"
)

const (
	Free = 16 << 10 // bytes that count in no share: every connection may hold so many
	Step = 64 << 10 // bytes by which a Reader takes more
)

// ErrNoRoom reports that a caller holds as many bytes as it may.
var ErrNoRoom = errors.New("too many bytes are held")

// Reader takes the bytes that it reads from the share of a caller, as they come: a caller that sends slowly holds no
// more than it has sent. Its Read ends with ErrNoRoom.
type Reader struct {
	io.Reader
	Shares *Shares
	Caller Caller
	read   int64
	taken  int64 // above Free
}

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.read += int64(n)
	for r.read > Free+r.taken {
		if !r.Shares.Take(r.Caller, Step) {
			return n, ErrNoRoom
		}
		r.taken += Step
	}
	return n, err
}

// Release returns what was taken, once nothing holds the bytes any more. What is read afterwards counts anew.
func (r *Reader) Release() {
	if r.taken > 0 {
		r.Shares.Release(r.Caller, r.taken)
	}
	r.read, r.taken = 0, 0
}
