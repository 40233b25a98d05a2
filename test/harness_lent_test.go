package e2e_test

import (
	"errors"
	"os"
	"slices"
	"sync"
	"testing"
)

// alone returns a system of a parallel test's own, of which the same must hold after the test as of the shared one.
func alone(t testing.TB) *system {
	t.Helper()
	s := start(t)
	t.Cleanup(func() { s.exact(t) })
	return s
}

// lent is a system that parallel tests use beside each other.
type lent struct {
	borrowers []string // the tests that call borrow; the last of them to end stops the system
	fill      func(*system, testing.TB)

	mu      sync.Mutex
	sys     *system
	waiting []string // the borrowers that have not ended
}

// small is a smallSystem. Its borrowers add nothing to it.
var small = lent{
	borrowers: []string{"TestExport", "TestBundleBadInput", "TestExportForPeople", "TestVerifyProof", "TestSecondVerifierBundle", "TestVerifyCompares"},
	fill:      (*system).fillSmall,
}

// busy is a system whose borrowers keep to sessions and mandates of their own, change no policy, count only what is
// theirs, and put nothing on the subjects of weapons.
var busy = lent{
	borrowers: []string{"TestAdmission", "TestVerifyReceipts", "TestAttackReplySubjects", "TestAttackMessageID",
		"TestAttackSteeringHeaders", "TestAttackForgedIdentity", "TestAttackMoneySpentTwice", "TestAttackMoneyByRetries",
		"TestAttackMoneyFreedByAnotherCallsEnd"},
	fill: func(*system, testing.TB) {},
}

// borrowed returns the small system.
func borrowed(t testing.TB) *system {
	t.Helper()
	return small.borrow(t)
}

// amongOthers returns the busy system, of which the same must hold after the test as of the shared one.
func amongOthers(t testing.TB) *system {
	t.Helper()
	s := busy.borrow(t)
	t.Cleanup(func() { s.exact(t) })
	return s
}

func (l *lent) borrow(t testing.TB) *system {
	t.Helper()
	needSystem(t)
	if !slices.Contains(l.borrowers, t.Name()) {
		t.Fatalf("%s is not in the list of borrowers", t.Name())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sys == nil {
		dir, err := os.MkdirTemp("", "countersign-e2e-lent-")
		ok(t, err)
		l.sys, err = boot(dir, "--policy", samplePolicies)
		ok(t, err)
		l.waiting = slices.Clone(l.borrowers)
		l.fill(l.sys, t)
	}
	s := l.sys
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.dir, s.tail())
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.waiting = slices.DeleteFunc(l.waiting, func(name string) bool { return name == t.Name() })
		if len(l.waiting) == 0 {
			ok(t, l.stop())
		}
	})
	return s
}

// stop ends the system, if there is one.
func (l *lent) stop() error {
	s := l.sys
	if s == nil {
		return nil
	}
	l.sys = nil
	defer os.RemoveAll(s.dir)
	return s.stop()
}

// dropLent ends the systems that are lent.
func dropLent() error { return errors.Join(small.stop(), busy.stop()) }
