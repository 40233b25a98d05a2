package fact

import "time"

// Statuses of an approval that matter here.
const (
	StatusPending  = "pending"
	StatusApproved = "approved"
	StatusConsumed = "consumed"
)

// RecommendedVerdictWait is how long publishers are recommended to wait for a verdict (SPEC
// 4). Checks wait no longer for the records of an approval either.
const RecommendedVerdictWait = 5 * time.Second
