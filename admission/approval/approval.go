// Package approval is the workflow that an ask or a defer opens: pure data and
// functions.
package approval

import "time"

// Terms is how a policy wants an approval to be given. The zero Terms means one
// reviewer, whoever may review for the tenant.
type Terms struct {
	Reviewers []string      // groups, of which a reviewer must be in one; empty: every reviewer of the tenant
	Quorum    int           // how many different reviewers must approve; 0 is 1
	Resume    string        // retry_same_event retry_with_workflow_id publisher_waits manual_retry; "" is the first
	Lifetime  time.Duration // how long the workflow stays open; 0: the default
}

// Book knows the workflows that are open or approved.
type Book interface {
}

// Step is what a decision does to a workflow. The service does it, by
// compare-and-set, before it records the decision.
type Step struct {
}
