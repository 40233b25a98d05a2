package publisher

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/countersign-dev/countersign/admission/policy/names"
	"github.com/countersign-dev/countersign/events"
	"github.com/countersign-dev/countersign/events/casefold"
	"github.com/countersign-dev/countersign/events/digest"
)

// Document is one stored document.
type Document struct {
	Tenant   string // AnyTenant: every tenant without documents of its own
	Name     string // as in Parsed.Name
	Data     []byte
	Revision uint64
}

// AnyTenant is the tenant of documents that come from no store.
const AnyTenant = ""

// Set is a compiled Registry.
type Set struct {
	tenants     map[string]*tenant
	anyTenant   *tenant
	revision    uint64
	digest      string
	unusableErr error // an unusable document of an unknown tenant
	list        []events.PublisherDocument
}

// tenant is what one tenant has declared.
type tenant struct {
	err           error
	state         *events.SnapshotRef
	canonical     map[string]*Entry
	names         map[scopedName]*Entry
	foldedNames   map[scopedName]string // the exact name by its case-folded form
	irreversible  map[string]bool       // the Binding.Action of irreversible tools
	families      map[string]*Declaration
	registrations map[string]map[string]*Declaration // by publisher and family
	gateways      map[string]string                  // by publisher
	repliers      []string                           // publishers that answer confirmations, sorted
}

// scopedName is a name as one publisher sends it, or, with publisher "", every publisher.
type scopedName struct{ publisher, name string }

// Compile compiles all documents. revision is the store's, 0 if it has none. unusable are keys
// of the store that name no document: their tenant is unknown, so everything of every tenant is
// denied until they are gone. The same documents give the same Set in any order.
func Compile(docs []Document, revision uint64, unusable ...string) *Set {
	s := &Set{tenants: map[string]*tenant{}, revision: revision}
	if len(unusable) > 0 {
		s.unusableErr = fmt.Errorf("%w: %.80q", ErrKey, slices.Min(unusable))
	}
	byTenant := map[string][]Document{}
	for _, d := range docs {
		byTenant[d.Tenant] = append(byTenant[d.Tenant], d)
	}
	names := make([]string, 0, len(byTenant))
	for name := range byTenant {
		names = append(names, name)
	}
	slices.Sort(names)
	var all strings.Builder
	for _, name := range names {
		t := s.compileTenant(byTenant[name])
		if name == AnyTenant {
			s.anyTenant = t
		} else {
			s.tenants[name] = t
		}
		fmt.Fprintf(&all, "%q %s\n", name, t.state.Digest)
	}
	s.digest = digest.Plain([]byte(all.String()))
	return s
}

// compileTenant compiles one tenant's documents.
func (s *Set) compileTenant(docs []Document) *tenant {
	t := &tenant{
		canonical: map[string]*Entry{}, names: map[scopedName]*Entry{}, foldedNames: map[scopedName]string{}, irreversible: map[string]bool{},
		families: map[string]*Declaration{}, registrations: map[string]map[string]*Declaration{}, gateways: map[string]string{},
	}
	slices.SortFunc(docs, func(a, b Document) int { return strings.Compare(a.Name, b.Name) })
	var (
		errs   []error
		parsed []Parsed
		state  strings.Builder
	)
	for _, d := range docs {
		sum := digest.Plain(d.Data)
		fmt.Fprintf(&state, "%q %s\n", d.Name, sum)
		s.list = append(s.list, events.PublisherDocument{Tenant: d.Tenant, Name: d.Name, Revision: d.Revision, Digest: sum})
		p, err := Parse(d.Data)
		if err == nil && p.Name != d.Name {
			err = fmt.Errorf("publisher: the document is named %.80q", p.Name)
		}
		if err == nil {
			err = t.addDeclaration(p)
		}
		if err == nil {
			err = t.addReach(p.reached)
		}
		if err != nil {
			s.list[len(s.list)-1].Error = truncateError(err.Error())
			errs = append(errs, fmt.Errorf("%s: %w", d.Name, err))
			continue
		}
		s.list[len(s.list)-1].Declares = p.recordForm()
		parsed = append(parsed, p)
	}
	errs = append(errs, t.addTools(parsed)...)
	t.err = errors.Join(errs...)
	t.state = &events.SnapshotRef{Revision: s.revision, Digest: digest.Plain([]byte(state.String()))}
	return t
}

// addDeclaration adds a manifest or registration.
func (t *tenant) addDeclaration(p Parsed) error {
	d := p.declaration
	switch {
	case d == nil:
		return nil
	case d.Publisher == "":
		if other := t.families[d.Source]; other != nil {
			return fmt.Errorf("publisher: the manifest %.80q is for the same source; register one of them for its publisher", other.ID)
		}
		t.families[d.Source] = d
	default:
		if t.registrations[d.Publisher] == nil {
			t.registrations[d.Publisher] = map[string]*Declaration{}
		}
		if other := t.registrations[d.Publisher][d.Source]; other != nil {
			return fmt.Errorf("publisher: the registration with the manifest %.80q is for the same publisher and source", other.ID)
		}
		t.registrations[d.Publisher][d.Source] = d
	}
	return nil
}

// addReach adds the gateway through which a publisher is reached, and whether it answers confirmations.
func (t *tenant) addReach(r reach) error {
	if at, known := slices.BinarySearch(t.repliers, r.publisher); r.answers && !known {
		t.repliers = slices.Insert(t.repliers, at, r.publisher)
	}
	if r.gateway == "" {
		return nil
	}
	if other := t.gateways[r.publisher]; other != "" && other != r.gateway {
		return fmt.Errorf("publisher: another registration of the same publisher names the gateway %.80q", other)
	}
	t.gateways[r.publisher] = r.gateway
	return nil
}

// addTools adds all tools: the canonical names first, so that no alias can occupy one of them.
func (t *tenant) addTools(docs []Parsed) (errs []error) {
	type named struct {
		doc string
		toolDoc
	}
	var tools []named
	for _, p := range docs {
		for _, tool := range p.tools {
			tools = append(tools, named{p.Name, tool})
		}
	}
	fail := func(n named, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: the tool %s: %s", n.doc, n.Name, fmt.Sprintf(format, args...)))
	}
	for _, n := range tools {
		if t.canonical[n.Name] != nil {
			fail(n, "there are two tools of this name")
			continue
		}
		e := n.newEntry()
		t.canonical[n.Name] = e
		if e.Irreversible && e.Mandate.Action != "" {
			t.irreversible[e.Mandate.Action] = true
		}
		if other, taken := t.addName(scopedName{"", n.Name}, e); taken {
			fail(n, "the name is that of %s in another case", other)
		}
	}
	canonical := maps.Clone(t.foldedNames) // without aliases yet
	for _, n := range tools {
		for _, a := range n.Aliases {
			like := t.canonical[canonical[scopedName{"", casefold.String(a.name)}]]
			switch {
			case !names.ValidTool(a.name):
				fail(n, "the alias %.80q cannot be told from every other name; policies refuse it", a.name)
			case t.canonical[a.name] != nil:
				fail(n, "the alias %s is the name of a tool; no alias may be", a.name)
			case a.publisher != "" && like != nil && like != t.canonical[n.Name]: // a publisher's own names are compared only with each other
				fail(n, "the alias %s is, but for its case, the name of %s", a.name, like.Name)
			default:
				if other, taken := t.addName(scopedName{a.publisher, a.name}, t.canonical[n.Name]); taken {
					fail(n, "the alias %s is, but perhaps for its case, one of %s too", a.name, other)
				}
			}
		}
	}
	return errs
}

// addName adds one name. taken reports that another tool has it, in any case.
func (t *tenant) addName(k scopedName, e *Entry) (other string, taken bool) {
	f := scopedName{k.publisher, casefold.String(k.name)}
	if old, there := t.foldedNames[f]; there {
		if o := t.names[scopedName{k.publisher, old}]; o != e {
			return o.Name, true
		}
	} else {
		t.foldedNames[f] = k.name
	}
	t.names[k] = e
	return "", false
}

// tenantByName returns what a tenant has declared, nil if nothing.
func (s *Set) tenantByName(name string) *tenant {
	if t := s.tenants[name]; t != nil {
		return t
	}
	return s.anyTenant
}

// Lookup implements Registry. A publisher's own name takes precedence over one for all
// publishers.
func (s *Set) Lookup(tenant, source, tool string) Tool {
	t := s.tenantByName(tenant)
	switch {
	case s.unusableErr != nil || t != nil && t.err != nil:
		return Tool{Status: Broken}
	case t == nil || len(t.canonical) == 0:
		return Tool{}
	case tool == "":
		return Tool{Status: Unknown, tenant: t}
	}
	if e := t.lookupEntry(source, tool); e != nil {
		return Tool{Status: Known, Entry: e, tenant: t}
	}
	f := casefold.String(tool)
	if t.foldedNames[scopedName{source, f}] != "" || t.foldedNames[scopedName{"", f}] != "" {
		return Tool{Status: CaseDiffers, tenant: t}
	}
	return Tool{Status: Unknown, tenant: t}
}

func (t *tenant) lookupEntry(source, tool string) *Entry {
	if e := t.names[scopedName{source, tool}]; e != nil {
		return e
	}
	return t.names[scopedName{"", tool}]
}

// IrreversibleAction implements Registry.
func (s *Set) IrreversibleAction(tenant, source, action string) bool {
	t := s.tenantByName(tenant)
	if t == nil {
		return false
	}
	e := t.lookupEntry(source, action)
	return e != nil && e.Irreversible || t.irreversible[action]
}

// Declared implements Registry.
func (s *Set) Declared(tenant, source, family string) Declared {
	t := s.tenantByName(tenant)
	if t == nil || t.err != nil {
		return Declared{}
	}
	if bound, registered := t.registrations[source]; registered {
		return Declared{true, bound[family]}
	}
	return Declared{false, t.families[family]}
}

// Gateway is the gateway through which a publisher is registered as reached: the name of its NATS
// user. It is "" for a publisher that connects directly, and for every one of a tenant whose
// documents cannot be used.
func (s *Set) Gateway(tenant, source string) string {
	t := s.tenantByName(tenant)
	if s.unusableErr != nil || t == nil || t.err != nil {
		return ""
	}
	return t.gateways[source]
}

// Repliers are the publishers of a tenant that are registered as answering confirmations, sorted.
func (s *Set) Repliers(tenant string) []string {
	t := s.tenantByName(tenant)
	if s.unusableErr != nil || t == nil || t.err != nil {
		return nil
	}
	return t.repliers
}

// Agents implements Registry.
func (s *Set) Agents(tenant, source string) (ids []string) {
	t := s.tenantByName(tenant)
	if t == nil || t.err != nil {
		return nil
	}
	for _, d := range t.registrations[source] {
		ids = append(ids, d.Agents...)
	}
	return ids
}

// State implements Registry.
func (s *Set) State(tenant string) *events.SnapshotRef {
	if t := s.tenantByName(tenant); t != nil {
		return t.state
	}
	return nil
}

// Err reports the documents that cannot be used, nil if there are none.
func (s *Set) Err() error {
	return s.ErrOf(func(string) bool { return true })
}

// ErrOf is Err for the documents of certain tenants, and of AnyTenant.
func (s *Set) ErrOf(wanted func(tenant string) bool) error {
	errs := []error{s.unusableErr}
	for _, name := range slices.Sorted(maps.Keys(s.tenants)) {
		if err := s.tenants[name].err; err != nil && wanted(name) {
			errs = append(errs, fmt.Errorf("tenant %s: %w", name, err))
		}
	}
	if s.anyTenant != nil {
		errs = append(errs, s.anyTenant.err)
	}
	return errors.Join(errs...)
}

// Documents lists all documents, unusable ones included, by tenant and name.
func (s *Set) Documents() []events.PublisherDocument { return slices.Clone(s.list) }

// Digest is the digest of all documents.
func (s *Set) Digest() string { return s.digest }
