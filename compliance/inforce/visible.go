package inforce

import (
	"bytes"
	"errors"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/countersign-dev/countersign/events"
)

// policyHead is the part of a policy file that says which tenants it concerns.
type policyHead struct {
	Kind    string `yaml:"kind"`
	Builtin string `yaml:"builtin"`
	Spec    struct {
		Match struct {
			Tenants []string `yaml:"tenants"`
		} `yaml:"match"`
	} `yaml:"spec"`
}

// visibleDocuments returns the documents that a tenant may see: those in which all policies hold for
// every tenant or for this tenant alone. If any document is withheld, files with shared parts
// (parameters, reviewers) are withheld too, because these could belong to another tenant. A
// document that cannot be read is withheld.
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
		return docs // keeps their order
	}
	return shown
}

// concernsTenant reports whether a file concerns only this tenant or all tenants (own), and whether it
// holds nothing but policies.
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
