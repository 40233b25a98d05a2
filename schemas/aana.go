package schemas

const (
	aanaEvent    = "aana/event"
	aanaContract = "aana/contract"
)

// AANA validates the shape of an event of the AANA Agent Action Contract v1 with normalised
// evidence references. It leaves out what the contract forbids between fields; AANAContract
// includes that.
func AANA(tree map[string]any) []Violation { return Default().Validate(aanaEvent, tree) }

// AANAContract validates an event as the published schema does.
func AANAContract(tree map[string]any) []Violation {
	return Default().Validate(aanaContract, tree)
}
