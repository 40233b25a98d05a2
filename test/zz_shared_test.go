package e2e_test

import "testing"

// TestSharedSystemsStop ends the systems that tests share, cleanly. It is the last test that runs
// alone: the parallel ones, which begin after it, use none of them.
func TestSharedSystemsStop(t *testing.T) {
	ok(t, dropCommons())
}
