package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// changing are the claims of a JWT that differ from token to token of the same holder.
var changing = []string{"exp", "iat", "nbf", "jti", "auth_time", "at_hash", "c_hash", "nonce"}

// ErrCaller reports a principal that cannot be understood.
var ErrCaller = errors.New("the principal cannot be understood")

// CallerOf names the holder for whom another gateway asks, the same with each of the holder's tokens: the
// subject and its issuer. A principal without a subject is named by all of it but the claims that change
// with each token. It is "" for none.
func CallerOf(principal json.RawMessage) (string, error) {
	if len(principal) == 0 || string(principal) == "null" {
		return "", nil
	}
	o, err := members(principal, []string{"sub", "subject", "claims"})
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCaller, err)
	}
	subject := o["sub"]
	if subject == nil {
		subject = o["subject"]
	} else if o["subject"] != nil {
		return "", fmt.Errorf("%w: it names two subjects", ErrCaller)
	}
	claims := map[string]json.RawMessage{}
	if raw := o["claims"]; raw != nil && json.Unmarshal(raw, &claims) != nil {
		return "", fmt.Errorf("%w: its claims are no object", ErrCaller)
	}
	named := map[string]json.RawMessage{"subject": subject, "issuer": claims["iss"]}
	if text(subject) == "" {
		maps.DeleteFunc(claims, func(name string, _ json.RawMessage) bool { return slices.Contains(changing, name) })
		if o["claims"], err = json.Marshal(claims); err != nil {
			return "", err
		}
		named = o
	}
	maps.DeleteFunc(named, func(_ string, value json.RawMessage) bool { return value == nil })
	whole, err := json.Marshal(named)
	if err != nil {
		return "", err
	}
	name, err := canonical(whole)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCaller, err)
	}
	return string(name), nil
}
