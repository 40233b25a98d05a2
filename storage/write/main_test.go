package write

import (
	"testing"

	"github.com/countersign-dev/countersign/storage/enginetest"
)

// freshWriter writes to an engine of the test's own.
func freshWriter(t *testing.T) *Writer {
	t.Helper()
	pool, _ := enginetest.Fresh(t)
	return New(pool)
}

func TestMain(m *testing.M) { enginetest.Main(m) }
