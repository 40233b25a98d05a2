package e2e_test

import "testing"

// TestSharedSystemStops ends the system that tests share, cleanly. It is the last test that runs
// alone: the parallel ones, which begin after it, do not use it.
func TestSharedSystemStops(t *testing.T) {
	ok(t, dropCommon())
}
