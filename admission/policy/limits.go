package policy

import "time"

// Limits of the language. They are part of it: a document beyond one of them is
// an error that says which.
const (
	MaxDocument   = 1 << 20 // bytes of one file
	MaxPolicies   = 10_000  // in one set
	MaxRules      = 1_000   // of one policy
	MaxOperand    = 256     // entries of one operand of match
	MaxPattern    = 256     // characters of one entry
	MaxExpression = 8_192   // characters of one condition
	MaxMessage    = 1_024   // characters of one message

	// MinLifetime and MaxLifetime bound expiresAfter.
	MinLifetime = time.Second
	MaxLifetime = 24 * time.Hour

	// MaxStaticCost bounds what CEL estimates for the worst input of assumedSize
	// when a policy is loaded: two nested loops over the arguments pass, three do
	// not. MaxRuntimeCost bounds what a condition may really cost.
	MaxStaticCost  = 10_000_000
	MaxRuntimeCost = 1_000_000
	assumedSize    = 256 // elements of a list or map, characters of a text
)
