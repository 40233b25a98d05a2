package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/countersign-dev/countersign/admission/publisher"
)

// excuses are the event types that publishers say their runtimes do not expose.
type excuses struct {
	all  map[string]bool // of every publisher
	docs []publisher.Document
	set  *publisher.Set // of docs; nil without --declared
}

// inForce adds the documents that the tenant's operators have put.
func (x *excuses) inForce(ctx context.Context, c *conformanceCmd) error {
	b, err := openPublishers(ctx, c.Flags)
	if err != nil {
		return fmt.Errorf("reading the manifests in force (--declared needs an operator's access; --manifest FILE needs none): %w", err)
	}
	defer b.nc.Close()
	docs, _, unusable, err := b.documents(ctx)
	if err != nil {
		return err
	}
	x.docs, x.set = docs, publisher.Compile(docs, 0, unusable...)
	return x.set.Err()
}

// of gives the types that a publisher is excused from. Manifests count for the
// publisher that they are registered for, and where it is not registered, for the
// one of their name.
func (x excuses) of(source string) map[string]bool {
	if x.set == nil {
		return x.all
	}
	list, exposed := maps.Clone(x.all), map[string]bool{}
	for _, doc := range x.docs {
		var m manifestEvents
		if json.Unmarshal(doc.Data, &m) != nil || m.ID == "" || !x.counts(doc.Tenant, source, m) {
			continue // another kind of document, or somebody else's
		}
		for typ, state := range m.AgentHook.Events {
			if notExposed(state) {
				list[typ] = true
			} else {
				exposed[typ] = true
			}
		}
	}
	for typ := range exposed { // by another runtime of the same publisher
		if !x.all[typ] {
			delete(list, typ)
		}
	}
	return list
}

func (x excuses) counts(tenant, source string, m manifestEvents) bool {
	d := x.set.Declared(tenant, source, m.AgentHook.Source)
	if d.Declaration == nil || d.ID != m.ID {
		return false
	}
	return d.Registered || m.ID == source || m.AgentHook.Source == source
}

// manifestEvents is what counts of a manifest here.
type manifestEvents struct {
	ID        string `json:"publisher_id"`
	AgentHook struct {
		Source string            `json:"source"`
		Events map[string]string `json:"events"`
	} `json:"agenthook"`
}

func notExposed(state string) bool {
	return state == publisher.NotExposed || state == publisher.Planned
}
