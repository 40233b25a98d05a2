package lease

import "errors"

// For tests.
var Read = readEntry

// Entry is the value of a lease's key, for tests.
type Entry = leaseEntry

// Renewals in one TTL.
const Renewals = renewals

// Kill ends a lease as the end of its process would.
func Kill(l *Lease) {
	l.lose(errors.New("killed"))
	<-l.done
}
