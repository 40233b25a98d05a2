package inforce

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
)

// policyHead is what of a policy file says whom it is about.
type policyHead struct {
	Kind    string `yaml:"kind"`
	Builtin string `yaml:"builtin"`
	Spec    struct {
		Match struct {
			Tenants []string `yaml:"tenants"`
		} `yaml:"match"`
	} `yaml:"spec"`
}

// visibleDocuments gives the documents that a tenant may see: those whose policies all
// hold for everybody or for this tenant alone. Where one does not, what policies
// share (parameters, reviewers) is not shown either: it could be the others'.
// What cannot be read is not shown.
func visibleDocuments(docs []events.PolicyDocument, tenant string) (shown []events.PolicyDocument) {
	var shared []events.PolicyDocument
	all := true
	for _, d := range docs {
		own, policies := concernsTenant([]byte(d.Text), tenant)
		switch {
		case !own:
			all = false
		case policies:
			shown = append(shown, d)
		default:
			shared = append(shared, d)
		}
	}
	if !all {
		return shown
	}
	if len(shared) > 0 {
		return docs // in their order
	}
	return shown
}

// concernsTenant says whether a file is the tenant's business, and whether it holds nothing
// but policies.
func concernsTenant(text []byte, tenant string) (own, policies bool) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	own, policies = true, true
	for {
		var h policyHead
		err := dec.Decode(&h)
		if errors.Is(err, io.EOF) {
			return own, policies
		}
		if err != nil {
			return false, false
		}
		for _, t := range h.Spec.Match.Tenants {
			own = own && t == tenant
		}
		policies = policies && (h.Kind == "AdmissionPolicy" || h.Builtin != "")
	}
}
