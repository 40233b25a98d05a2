package policy

import "time"

// Limits of the language. They are part of it: a document beyond a limit is an error that names
// the limit.
const (
	MaxDocument   = 1 << 20 // bytes of one file
	MaxPolicies   = 10_000  // policies in one set
	MaxRules      = 1_000   // rules of one policy
	MaxOperand    = 256     // entries of one operand of match
	MaxPattern    = 256     // characters of one entry
	MaxExpression = 8_192   // characters of one condition
	MaxMessage    = 1_024   // characters of one message

	MaxVariables    = 64    // variables of one policy
	MaxParams       = 256   // params of one policy, those of other documents included
	MaxParamEntries = 1_024 // entries of one list or mapping among the params
	MaxParamText    = 8_192 // characters of one text among the params
	MaxParamsFrom   = 16    // documents of one paramsFrom
	MaxMembers      = 1_024 // members of one reviewer group
	MaxReviewers    = 16    // groups that one approval names
	MaxQuorum       = 16    // reviewers of one quorum
	MaxShown        = 64    // entries of one show
	MaxCounts       = 64    // counters that one call can be counted in

	// MinLifetime and MaxLifetime bound expiresAfter.
	MinLifetime = time.Second
	MaxLifetime = 24 * time.Hour

	// MinWindow and MaxWindow bound limit.per.
	MinWindow = time.Second
	MaxWindow = 31 * 24 * time.Hour

	// The largest integer that RFC 8785 can tell from its successor.
	MaxAmount = 1<<53 - 1 // amount of one call, and max of a limit

	// CEL's estimate is for the worst input of assumedSize. Variables that a condition uses count as if
	// written in it. MaxRuntimeCost bounds that of all variables of a policy together on one call, too.
	MaxStaticCost  = 10_000_000 // estimated cost of one condition: two nested loops over the arguments pass, three do not
	MaxRuntimeCost = 1_000_000  // real cost of one condition on one call

	MaxCallSteps = 10_000_000 // real cost of all conditions together on one call

	// Texts, lists and maps, garbage included, each counted as if it shared nothing with another.
	MaxCallBytes = 16 << 20 // bytes that all conditions together may make on one call

	MaxPatternOfCall = 1_024 // characters of a pattern that is not written in the condition

	assumedResults = 64  // elements of a list that a function returns
	assumedSize    = 256 // elements of a list or map, characters of a text
)
