package questions

import (
	"testing"

	"github.com/countersign-dev/countersign/storage/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }
