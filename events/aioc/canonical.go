package aioc

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// protoKey is the member that sets an object's prototype in JavaScript.
const protoKey = "__proto__"

// canonicalForm returns aioc's canonical form of a tree that strictjson made. It is RFC 8785 except
// for two properties of JavaScript objects: members with an array index as their name (0 to 2^32-2)
// come first, in numeric order, and a member __proto__ is lost. See FindAmbiguousKey.
func canonicalForm(v any) ([]byte, error) {
	if !hasOddName(v) {
		return strictjson.Canonical(v)
	}
	return appendCanonical(nil, v)
}

func appendCanonical(b []byte, v any) (_ []byte, err error) {
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for _, k := range orderedKeys(v) {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, k); err != nil {
				return nil, err
			}
			if b, err = appendCanonical(append(b, ':'), v[k]); err != nil {
				return nil, err
			}
		}
		return append(b, '}'), nil
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendCanonical(b, e); err != nil {
				return nil, err
			}
		}
		return append(b, ']'), nil
	default:
		leaf, err := strictjson.Canonical(v)
		return append(b, leaf...), err
	}
}

// orderedKeys are the member names in aioc's order.
func orderedKeys(m map[string]any) []string {
	names := slices.DeleteFunc(slices.Collect(maps.Keys(m)), func(k string) bool { return k == protoKey })
	slices.SortFunc(names, func(a, b string) int {
		x, isX := arrayIndex(a)
		y, isY := arrayIndex(b)
		switch {
		case isX && isY && x < y, isX && !isY:
			return -1
		case isX && isY, isY:
			return 1
		}
		return strictjson.CompareKeys(a, b)
	})
	return names
}

// arrayIndex parses a name that is an array index in JavaScript.
func arrayIndex(name string) (uint64, bool) {
	if name == "" || name[0] < '0' || name[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(name, 10, 32)
	if err != nil || n == 1<<32-1 || strconv.FormatUint(n, 10) != name {
		return 0, false
	}
	return n, true
}

// FindAmbiguousKey looks for a member that aioc and RFC 8785 treat differently, so that two
// readers would hash different documents. path is the JSON pointer of the first one, in order
// of names.
func FindAmbiguousKey(v any) (path string, found bool) {
	switch v := v.(type) {
	case map[string]any:
		if !hasOddName(v) {
			return "", false
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			if isOddName(k) {
				return "/" + strictjson.EscapePointer(k), true
			}
			if below, found := FindAmbiguousKey(v[k]); found {
				return "/" + strictjson.EscapePointer(k) + below, true
			}
		}
	case []any:
		for i, e := range v {
			if below, found := FindAmbiguousKey(e); found {
				return "/" + strconv.Itoa(i) + below, true
			}
		}
	}
	return "", false
}

// hasOddName reports the same as FindAmbiguousKey, without a path and so without sorting.
func hasOddName(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			if isOddName(k) || hasOddName(e) {
				return true
			}
		}
	case []any:
		return slices.ContainsFunc(v, hasOddName)
	}
	return false
}

func isOddName(name string) bool {
	_, index := arrayIndex(name)
	return index || name == protoKey
}

// Hashes identify a proposal. They are plain SHA-256 in lower-case hex, without prefix and
// salt, so short arguments can be guessed from them. They may be sent to a caller that has the
// arguments anyway, and never be recorded.
type Hashes struct {
	Proposal  string // of agent, tool and arguments, or of both agents and payload
	Payload   string // of canonicalForm: argsHash or payloadHash
	Canonical string // argsCanonicalJson or payloadCanonicalJson
}

// HashTool computes the hashes of a tool proposal.
func HashTool(agentName, toolName string, arguments any) (Hashes, error) {
	return proposalHashes(arguments, "argsCanonicalJson", map[string]string{"kind": "tool", "agentName": agentName, "toolName": toolName})
}

// HashHandoff computes the hashes of a handoff proposal.
func HashHandoff(fromAgentName, toAgentName string, payload any) (Hashes, error) {
	return proposalHashes(payload, "payloadCanonicalJson", map[string]string{"kind": "handoff", "fromAgentName": fromAgentName, "toAgentName": toAgentName})
}

// proposalHashes puts the canonical form of the payload into the proposal as a text, so it is
// encoded twice.
func proposalHashes(payload any, member string, proposal map[string]string) (Hashes, error) {
	canonical, err := canonicalForm(payload)
	if err != nil {
		return Hashes{}, fmt.Errorf("aioc: %w", err)
	}
	proposal[member] = string(canonical)
	whole, err := strictjson.Canonical(proposal)
	if err != nil {
		return Hashes{}, fmt.Errorf("aioc: %w", err)
	}
	return Hashes{Proposal: hexSum(whole), Payload: hexSum(canonical), Canonical: string(canonical)}, nil
}

func hexSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
