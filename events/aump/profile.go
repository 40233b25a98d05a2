package aump

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Profile is an issuer's document under /.well-known/aump. Countersign reads only its keys.
type Profile struct {
	Version     string           // aump.version
	Type        string           // aump.type
	SigningKeys []map[string]any // JSON Web Keys as in the tree

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that DecodeProfile was given, not a copy
}

// DecodeProfile reads one profile. Its errors are those of DecodeMandate.
func DecodeProfile(raw []byte, lim strictjson.Limits) (*Profile, error) {
	p := &Profile{Raw: raw}
	doc, env, err := decodeDocument(raw, lim, p.readFields)
	if !doc.Exists() {
		return nil, err
	}
	p.Doc, p.Version, p.Type = doc, env.version, env.kind
	return p, err
}

// Tree is the whole document, as strictjson.Parse gives it. Each call makes it anew.
func (p *Profile) Tree() map[string]any { return p.Doc.ObjectTree() }

func (p *Profile) readFields(o field.Object) {
	p.SigningKeys = readEach(o, "signing_keys", func(k field.Object) map[string]any { return k.Value().ObjectTree() })
}
