package inforce

import (
	"cmp"
	"slices"

	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/evidence"
)

// maxRefs bounds the distinct policies and mandates that are followed.
const maxRefs = 20_000

// policySet names one state of the set of policies.
type policySet struct {
	revision uint64
	digest   string
}

// Refs gathers what the decisions of a bundle name. The zero Refs is empty.
type Refs struct {
	policies  map[policySet]Use
	mandates  map[events.MandateRef]Use
	first     uint64 // sequences of all records
	last      uint64
	truncated bool // there were more than are followed
}

// Add takes the next record.
func (r *Refs) Add(rec evidence.Record) {
	if r.first == 0 {
		r.first = rec.Seq
	}
	r.last = rec.Seq
	if rec.Kind != evidence.KindDecision || rec.Reason != "" {
		return
	}
	d, err := events.DecodeRecord[events.Decision](rec.Body)
	if err != nil {
		return // verification says so
	}
	if d.Policy != nil {
		r.truncated = !countUse(&r.policies, policySet{d.Policy.Revision, d.Policy.Digest}, rec.Seq) || r.truncated
	}
	if d.Mandate != nil {
		r.truncated = !countUse(&r.mandates, *d.Mandate, rec.Seq) || r.truncated
	}
}

func countUse[K comparable](m *map[K]Use, key K, seq uint64) bool {
	u, known := (*m)[key]
	if !known && len(*m) >= maxRefs {
		return false
	}
	if *m == nil {
		*m = map[K]Use{}
	}
	if u.Decisions++; u.First == 0 {
		u.First = seq
	}
	u.Last = seq
	(*m)[key] = u
	return true
}

func sortPolicies(list []Policy) {
	slices.SortFunc(list, func(a, b Policy) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Digest, b.Digest), cmp.Compare(a.Seq, b.Seq))
	})
}

func sortMandates(list []Mandate) {
	slices.SortFunc(list, func(a, b Mandate) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Hash, b.Hash)) })
}
