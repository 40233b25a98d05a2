package mandate

// Reservation is money that an admitted action may spend, to be held in the
// ledger until its outcome is known.
type Reservation struct {
	Proposal
	Amount int64 // minor units of the proposal's currency
}
