package evidence

import (
	"encoding/base64"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
)

// validCloudEvent reports whether a document is a CloudEvent 1.0 in JSON: the
// four attributes that every one has, and data that can be read, if any.
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

// redactCloudEvent redacts an envelope with the event in it: declared fields
// are paths from data. Encoded data that holds a secret goes as a whole.
func (b *Builder) redactCloudEvent(c *content) (err error) {
	m := c.tree.(map[string]any)
	declared := redact.DeclaredFields(m["data"])
	for i, f := range declared {
		declared[i] = inData(f)
	}
	if s, ok := m["data_base64"].(string); ok && b.encodedSecret(s) {
		declared = append(declared, "data_base64")
	}
	c.tree, c.hits, err = b.document(m, "/body", declared)
	for i := range c.hits {
		if c.hits[i].Path == "/body/data_base64" && c.hits[i].Detector == redact.DeclaredField {
			c.hits[i].Detector = redact.EncodedData
			m["data_base64"] = redact.Placeholder(redact.EncodedData)
		}
	}
	return err
}

func inData(field string) string {
	if field != "" && field[0] == '/' {
		return "/data" + field
	}
	for len(field) > 0 && (field[0] == '$' || field[0] == '.') {
		field = field[1:]
	}
	if field == "" {
		return ""
	}
	return "data." + field
}

// encodedSecret reports whether data holds anything that would be redacted if
// it were not encoded.
func (b *Builder) encodedSecret(data string) bool {
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(redact.Scan(string(raw))) > 0 {
		return true
	}
	tree, err := strictjson.Parse(raw, strictjson.DefaultLimits)
	if err != nil {
		return false
	}
	_, hits, err := b.document(tree, "", redact.DeclaredFields(tree))
	return err != nil || len(hits) > 0
}
