package build

import (
	"encoding/base64"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// validCloudEvent reports whether a document is a CloudEvent 1.0 in JSON: it has the four
// required attributes, and its data, if any, can be decoded.
func validCloudEvent(tree any) bool {
	m, ok := tree.(map[string]any)
	if !ok || m["specversion"] != "1.0" {
		return false
	}
	for _, name := range [...]string{"id", "source", "type"} {
		if s, _ := m[name].(string); s == "" {
			return false
		}
	}
	encoded, there := m["data_base64"]
	if !there {
		return true
	}
	_, both := m["data"]
	s, _ := encoded.(string)
	_, err := base64.StdEncoding.DecodeString(s)
	return err == nil && !both && s != ""
}

// redactCloudEvent redacts a structured CloudEvent. Declared fields are paths from data.
// If data_base64 holds a secret, the whole member is redacted.
func (r *recordRedactor) redactCloudEvent(c *recordBody) (err error) {
	m := c.tree.(map[string]any)
	declared := redact.DeclaredFields(m["data"])
	for i, f := range declared {
		declared[i] = redact.PathBelow("data", f)
	}
	config := r.redactConfig("", true)
	if s, ok := m["data_base64"].(string); ok && r.holdsEncodedSecret(s, config) {
		declared = append(declared, "data_base64")
	}
	c.tree, c.hits, err = r.redactDocument(m, "/body", declared, config)
	for i := range c.hits {
		if c.hits[i].Path == "/body/data_base64" && c.hits[i].Detector == redact.DeclaredField {
			c.hits[i].Detector = redact.EncodedData
			if m["data_base64"] != nil {
				m["data_base64"] = redact.Placeholder(redact.EncodedData)
				c.hits[i].Action = redact.Mask
			}
		}
	}
	return err
}

// holdsEncodedSecret reports whether the decoded data holds anything that would be
// redacted. Data that cannot be decoded counts as secret.
func (r *recordRedactor) holdsEncodedSecret(data string, config redact.Config) bool {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(redact.Scan(string(raw))) > 0 || config.Echoes.FoundIn(string(raw)) {
		return true
	}
	tree, err := strictjson.Parse(raw, strictjson.DefaultLimits)
	if err != nil {
		return false
	}
	config.Forced = nil
	_, hits, err := r.redactDocument(tree, "", redact.DeclaredFields(tree), config)
	return err != nil || len(hits) > 0
}
