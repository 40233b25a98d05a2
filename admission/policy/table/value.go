package table

import (
	"math"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events/strictjson"
)

// readValue converts YAML to a JSON tree, numbers as written. What JSON lacks (other tags, keys
// that are not text, not-a-number) is an error.
func (r *reader) readValue(n *yaml.Node, depth int) (any, bool) {
	if r.nodes++; r.nodes > maxNodes || depth > maxDepth {
		if r.nodes == maxNodes+1 || depth == maxDepth+1 {
			r.Fail(n, "the table is too large or too deep, aliases included")
			r.nodes = max(r.nodes, maxNodes+1)
		}
		return nil, false
	}
	switch n.Kind {
	case yaml.AliasNode:
		return r.readValue(n.Alias, depth+1)
	case yaml.MappingNode:
		return r.readObject(n, depth)
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, c := range n.Content {
			v, ok := r.readValue(c, depth+1)
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	}
	return r.readScalar(n)
}

func (r *reader) readObject(n *yaml.Node, depth int) (any, bool) {
	m := make(map[string]any, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k := n.Content[i]
		if _, twice := m[k.Value]; twice || k.Kind != yaml.ScalarNode || k.ShortTag() == "!!merge" {
			r.Fail(k, "the key %.40q is there twice, or is no plain key", k.Value)
			return nil, false
		}
		v, ok := r.readValue(n.Content[i+1], depth+1)
		if !ok {
			return nil, false
		}
		m[k.Value] = v
	}
	return m, true
}

func (r *reader) readScalar(n *yaml.Node) (any, bool) {
	switch n.ShortTag() {
	case "!!str", "!!timestamp": // JSON has no times: a timestamp is text
		return n.Value, true
	case "!!null":
		return nil, true
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b, true
		}
	case "!!int", "!!float":
		if num, ok := numberValue(n); ok {
			return num, true
		}
	}
	r.Fail(n, "%.40q is nothing that JSON has; put it in quotes if it is a text", n.Value)
	return nil, false
}

// numberValue keeps a number as written if that is valid JSON.
func numberValue(n *yaml.Node) (any, bool) {
	if v, err := strictjson.Parse([]byte(n.Value), strictjson.DefaultLimits); err == nil {
		return v, true
	}
	var i int64
	if n.ShortTag() == "!!int" && n.Decode(&i) == nil {
		return i, true
	}
	var f float64
	if n.Decode(&f) != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, false
	}
	return f, true
}
