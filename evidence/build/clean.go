package build

import (
	"sync"
	"unicode/utf8"

	"github.com/countersign-dev/countersign/events/strictjson"
	"github.com/countersign-dev/countersign/events/subject"
	"github.com/countersign-dev/countersign/evidence/internal/names"
	"github.com/countersign-dev/countersign/evidence/internal/protocol"
	"github.com/countersign-dev/countersign/evidence/internal/redact"
	"github.com/countersign-dev/countersign/evidence/internal/scope"
)

// maxCheckedBytes is the longest event that findUnclean checks. For longer events nearly all of the
// cost is the scan, which redaction would repeat.
const maxCheckedBytes = 8 << 10

// workspace holds the reusable buffers of one goroutine that makes records.
type workspace struct {
	text    []byte // the canonical form of a body
	checker redact.CleanChecker
	scopes  map[string]recordScope // scopes of recent subjects
}

func newWorkspacePool() *sync.Pool {
	return &sync.Pool{New: func() any { return &workspace{scopes: map[string]recordScope{}} }}
}

func (b *Builder) getWorkspace() *workspace { return b.workspaces.Get().(*workspace) }

// scopeOf caches its results, because the records of a session share few subjects.
func (w *workspace) scopeOf(space subject.Space, subj string) recordScope {
	if sc, known := w.scopes[subj]; known {
		return sc
	}
	if len(w.scopes) >= scope.MaxCached {
		clear(w.scopes)
	}
	sc := recordScope{Scope: scope.Of(space, subj)}
	switch sc.SubjectClass {
	case "":
		sc.hasSecret = utf8.ValidString(subj) && names.HoldsSecret(&w.checker, subj)
	case subject.Control:
	default:
		space.Rename(subj, func(name string) string {
			sc.hasSecret = sc.hasSecret || names.HoldsSecret(&w.checker, name)
			return name
		})
	}
	sc.logSession, sc.subject = sc.Key, subject.PrintableName(subj)
	w.scopes[subj] = sc
	return sc
}

// findUnclean finds the members of a body in which there may be something to redact: none in most
// messages, few in most others. The record holds the canonical form of the rest, of which no tree is
// made (TestCleanBodyMakesTheSameRecord, FuzzCleanBody). false means that the whole body has to be
// redacted. A panic counts as false. ADR 14 has what the check saves.
func (r *recordRedactor) findUnclean(root strictjson.Value) (unclean redact.Unclean, ok bool) {
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	checker := &r.workspace.checker
	switch {
	case r.builder.document != nil || !r.usesDefaultRules():
		return unclean, false
	case r.isServiceRecord():
		return unclean, !isRedactedKind(r.scope.Kind) || names.IsClean(checker, root, "")
	case isStructuredCloudEvent(r.message.Header) || len(r.message.Body) > maxCheckedBytes:
		return unclean, false
	}
	return checker.CheckDocument(root, r.scope.Protocol, len(r.message.Body))
}

// usesDefaultRules reports whether redaction removes only what detectors find.
func (r *recordRedactor) usesDefaultRules() bool {
	return !r.policyUnusable && r.withheldBy == "" && r.echoes == nil && (r.policy == nil || !r.policy.RemovesFields())
}

// isCleanHeader reports whether there is nothing to redact in a header.
func (r *recordRedactor) isCleanHeader(name string, values []string) bool {
	return r.builder.document == nil && r.usesDefaultRules() && !protocol.Of(r.scope.Protocol).AccountIDs &&
		headerName(name) == name && r.workspace.checker.CheckTexts(name, values)
}
