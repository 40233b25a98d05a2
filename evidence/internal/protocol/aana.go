package protocol

import "strings"

// maxKey is how many bytes of a key, or of the name of a protected field, are read.
const maxKey = 256

// inspectAANA makes the rule for keys that AANA calls sensitive.
func inspectAANA(any) ExtraRules { return sensitiveAANA }

func sensitiveAANA(key string, _ []byte) (Rule, bool) {
	return Rule{Detector: NeverStore}, isSensitiveKey(key)
}

// sensitiveParts are the parts of a key, between underscores, that AANA calls sensitive.
var sensitiveParts = []string{"api_key", "auth_token", "bearer_token", "client_secret", "password", "private_account_id", "raw_token", "secret", "session_token"}

func isSensitiveKey(key string) bool {
	if len(key) > maxKey {
		key = key[:maxKey]
	}
	key = "_" + strings.ToLower(key) + "_"
	for _, part := range sensitiveParts {
		if strings.Contains(key, "_"+part+"_") {
			return true
		}
	}
	return false
}
