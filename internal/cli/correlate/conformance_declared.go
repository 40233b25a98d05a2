package correlate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/countersign-dev/countersign/admission/publisher"
	"github.com/countersign-dev/countersign/internal/cli/publishercmd"
)

// excuses are the event types that publishers declare as not exposed.
type excuses struct {
	all       map[string]bool // for every publisher
	manifests []manifestInForce
}

// manifestInForce is a manifest that an operator has put, by itself or with a registration.
type manifestInForce struct {
	manifestEvents
	publisher string // that it is registered for; "" without a registration
	used      *bool  // it applied to a publisher
}

// inForce adds the documents that the tenant's operators have put.
func (x *excuses) inForce(ctx context.Context, c *ConformanceCmd) error {
	b, err := publishercmd.OpenPublishers(ctx, c.Flags)
	if err != nil {
		return fmt.Errorf("reading the manifests in force (--declared needs an operator's access; --manifest FILE needs none): %w", err)
	}
	defer b.Conn.Close()
	docs, _, unusable, err := b.Documents(ctx)
	if err != nil {
		return err
	}
	x.manifests = manifestsOf(docs)
	return publisher.Compile(docs, 0, unusable...).Err()
}

// manifestsOf returns the manifests among documents.
func manifestsOf(docs []publisher.Document) (list []manifestInForce) {
	for _, doc := range docs {
		var registration struct {
			Publisher string         `json:"publisher"`
			Manifest  manifestEvents `json:"manifest"`
		}
		m := manifestInForce{used: new(bool)}
		if json.Unmarshal(doc.Data, &registration) == nil && registration.Manifest.ID != "" {
			m.manifestEvents, m.publisher = registration.Manifest, registration.Publisher
		} else if json.Unmarshal(doc.Data, &m.manifestEvents) != nil || m.ID == "" {
			continue // another kind of document
		}
		list = append(list, m)
	}
	return list
}

// of returns the event types that a publisher is excused from. The manifest of a registration
// applies to the registered publisher. A manifest without a registration applies to the publisher
// of its name, unless that one is registered.
func (x excuses) of(source string) map[string]bool {
	if len(x.manifests) == 0 {
		return x.all
	}
	registered := slices.ContainsFunc(x.manifests, func(m manifestInForce) bool { return m.publisher == source })
	list, exposed := maps.Clone(x.all), map[string]bool{}
	for _, m := range x.manifests {
		if registered && m.publisher != source || !registered && (m.publisher != "" || m.ID != source && m.AgentHook.Source != source) {
			continue // of another publisher
		}
		*m.used = true
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

// idle lists the manifests that applied to no publisher.
func (x excuses) idle() (ids []string) {
	for _, m := range x.manifests {
		if !*m.used {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// manifestEvents is the part of a manifest that is used here.
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
