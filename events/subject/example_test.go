package subject_test

import (
	"errors"
	"fmt"

	"github.com/countersign-dev/countersign/events/subject"
)

// A subscriber follows every denial of its tenant.
func ExampleSpace_Outputs() {
	var space subject.Space // prefix "gov"
	fmt.Println(space.Outputs(subject.Decisions, "acme", "deny", ""))
	fmt.Println(space.Outputs(subject.Decisions, "acme", "", "s1"))
	// Output:
	// gov.decisions.acme.deny.*
	// gov.decisions.acme.*.s1
}

// Builders take raw values and escape what NATS cannot carry in one token.
func ExampleSpace_Event() {
	var space subject.Space
	fmt.Println(space.Event("acme", "rt1", subject.ProtoAAEP, "s1", "agent.tool.invoked"))
	fmt.Println(space.Event("acme", "rt1", subject.ProtoAgentHook, "session 1", "PreToolUse"))
	fmt.Println(space.Event("acme", "rt1", subject.ProtoAgentHook, "", "PreToolUse"))
	// Output:
	// gov.events.acme.rt1.aaep.s1.agent.tool.invoked
	// gov.events.acme.rt1.agenthook.~c2Vzc2lvbiAx.PreToolUse
	// gov.events.acme.rt1.agenthook.~.PreToolUse
}

// Parse gives the values back, as they were before they were escaped.
func ExampleSpace_Parse() {
	var space subject.Space
	p, err := space.Parse("gov.events.acme.rt1.agenthook.~c2Vzc2lvbiAx.PreToolUse")
	fmt.Printf("%s of %s, session %q, type %s, error %v\n", p.Class, p.Tenant, p.Session, p.Type, err)

	_, err = space.Parse("other.events.acme")
	fmt.Println(errors.Is(err, subject.ErrForeign))
	// Output:
	// events of acme, session "session 1", type PreToolUse, error <nil>
	// true
}
