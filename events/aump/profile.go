package aump

import (
	"github.com/countersign-dev/countersign/events/internal/field"
	"github.com/countersign-dev/countersign/events/strictjson"
)

// Profile is an issuer's document under /.well-known/aump.
type Profile struct {
	Version           string // aump.version
	Type              string // aump.type
	Issuer            Issuer
	SupportedVersions []string
	Bindings          map[string]Binding
	Revocation        Revocation
	SigningKeys       []map[string]any // JSON Web Keys as in the tree

	Doc strictjson.Value // the whole document
	Raw []byte           // the bytes that DecodeProfile was given, not a copy
}

// Issuer is the issuer of a profile.
type Issuer struct{ ID, Name, HomepageURL string }

// Binding is a protocol that carries references to mandates.
type Binding struct {
	Supported      bool
	Endpoint, Spec string
	Methods        []string
}

// Revocation states where revocations are published.
type Revocation struct {
	Endpoint           string
	SupportsStatusList bool
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
	p.Issuer = readChild(o, "issuer", func(i field.Object) Issuer {
		return Issuer{ID: i.Text("id"), Name: i.Text("name"), HomepageURL: i.Text("homepage_url")}
	})
	p.SupportedVersions = o.Texts("supported_versions")
	if bindings, ok := o.Child("bindings"); ok {
		p.Bindings = map[string]Binding{}
		for _, name := range []string{"mcp", "a2a", "ucp_ap2", "rest"} {
			if b := readOptional(bindings, name, readBinding); b != nil {
				p.Bindings[name] = *b
			}
		}
	}
	p.Revocation = readChild(o, "revocation", func(r field.Object) Revocation {
		return Revocation{Endpoint: r.Text("endpoint"), SupportsStatusList: isTrue(r.Bool("supports_status_list"))}
	})
	p.SigningKeys = readEach(o, "signing_keys", func(k field.Object) map[string]any { return k.Value().ObjectTree() })
}

func readBinding(o field.Object) Binding {
	return Binding{
		Supported: isTrue(o.Bool("supported")), Endpoint: o.Text("endpoint"), Spec: o.Text("spec"), Methods: o.Texts("methods"),
	}
}
