package lease

import "errors"

// For tests.
var (
	Take = takeLease
	Read = readEntry
)

// Renewals in one TTL.
const Renewals = renewals

// Kill ends a lease as the end of its process would.
func Kill(l *Lease) {
	l.lose(errors.New("killed"))
	<-l.done
}
