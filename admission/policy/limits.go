package policy

import "time"

// Limits of the language. They are part of it: a document beyond a limit is an error that names
// the limit.
const (
	MaxDocument   = 1 << 20 // bytes of one file
	MaxPolicies   = 10_000  // in one set
	MaxRules      = 1_000   // of one policy
	MaxOperand    = 256     // entries of one operand of match
	MaxPattern    = 256     // characters of one entry
	MaxExpression = 8_192   // characters of one condition
	MaxMessage    = 1_024   // characters of one message

	MaxVariables    = 64    // of one policy
	MaxParams       = 256   // of one policy, those of other documents included
	MaxParamEntries = 1_024 // entries of one list or mapping among the params
	MaxParamText    = 8_192 // characters of one text among the params
	MaxParamsFrom   = 16    // documents of one paramsFrom
	MaxMembers      = 1_024 // of one reviewer group
	MaxReviewers    = 16    // groups that one approval names
	MaxQuorum       = 16
	MaxShown        = 64 // entries of approval.show
	MaxCounts       = 64 // counters that one call can be counted in

	// MinLifetime and MaxLifetime bound expiresAfter.
	MinLifetime = time.Second
	MaxLifetime = 24 * time.Hour

	// MinWindow and MaxWindow bound limit.per.
	MinWindow = time.Second
	MaxWindow = 31 * 24 * time.Hour

	// MaxAmount bounds the amount of one call and the max of a limit: the largest integer that
	// RFC 8785 can tell from its successor.
	MaxAmount = 1<<53 - 1

	// MaxStaticCost bounds CEL's estimate for the worst input of assumedSize when a policy is
	// loaded: two nested loops over the arguments pass, three do not. Variables that a
	// condition uses count as if written in it. MaxRuntimeCost bounds the actual cost of a
	// condition, and that of all variables of a policy together on one call.
	MaxStaticCost  = 10_000_000
	MaxRuntimeCost = 1_000_000

	// MaxCallSteps bounds the cost of all conditions together on one call.
	MaxCallSteps = 10_000_000

	// MaxCallBytes bounds what all conditions together may create on one call, in bytes: texts,
	// lists and maps, garbage included, each counted as if it shared nothing with another.
	MaxCallBytes = 16 << 20

	// MaxPatternOfCall bounds a pattern that is not written in the condition.
	MaxPatternOfCall = 1_024

	assumedResults = 64  // elements of a list that a function returns
	assumedSize    = 256 // elements of a list or map, characters of a text
)
