package schemas

const (
	aanaEvent    = "aana/event"
	aanaContract = "aana/contract"
)

// AANA judges the shape of an event of the AANA Agent Action Contract v1 whose
// evidence references are normalised. What the contract forbids between fields
// is not asked: AANAContract asks that too.
func (r *Registry) AANA(tree map[string]any) []Violation { return r.Validate(aanaEvent, tree) }

// AANAContract judges an event as the published schema does.
func (r *Registry) AANAContract(tree map[string]any) []Violation {
	return r.Validate(aanaContract, tree)
}
