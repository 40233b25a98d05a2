package fact

import "time"

// Statuses of an approval that the engine knows.
const (
	StatusPending   = "pending"
	StatusApproved  = "approved"
	StatusConsumed  = "consumed"
	StatusDenied    = "denied"
	StatusExpired   = "expired"
	StatusCancelled = "cancelled"
)

// RecommendedVerdictWait is how long a publisher should wait for a verdict (AgentHook SPEC 4).
// The checks give the records of an approval the same time.
const RecommendedVerdictWait = 5 * time.Second
