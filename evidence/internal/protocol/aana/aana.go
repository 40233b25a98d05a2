// Package aana has the row of AANA at the stage of evidence.
package aana

import (
	"strings"

	"github.com/countersign-dev/countersign/evidence/internal/protocol/storable"
)

// Row is the row of AANA.
var Row = &storable.Row{
	Keep: storable.Members(map[storable.KeepRule]string{
		storable.KeepIdentifier: "schema_version tool_name tool_category authorization_state risk_domain recommended_route request_id agent_id authorization_subject.subject_type",
	}),
	NeverStore: storable.NeverStored(storable.NeverStore,
		"prompt user_request request candidate candidate_action candidate_answer draft_response available_evidence evidence constraints "+
			"safe_response output full_tool_arguments raw_tool_arguments",
		"proposed_arguments arguments tool_arguments"),
	Inspect: inspect, AccountIDs: true,
}

// inspect makes the rule for keys that AANA calls sensitive.
func inspect(any) storable.ExtraRules { return sensitive }

func sensitive(key string, _ []byte) (storable.Rule, bool) {
	return storable.Rule{Detector: storable.NeverStore}, isSensitiveKey(key)
}

// sensitiveParts are the parts of a key, between underscores, that AANA calls sensitive.
var sensitiveParts = []string{"api_key", "auth_token", "bearer_token", "client_secret", "password", "private_account_id", "raw_token", "secret", "session_token"}

func isSensitiveKey(key string) bool {
	if len(key) > storable.MaxKey {
		key = key[:storable.MaxKey]
	}
	key = "_" + strings.ToLower(key) + "_"
	for _, part := range sensitiveParts {
		if strings.Contains(key, "_"+part+"_") {
			return true
		}
	}
	return false
}
