package schemas

import (
	"testing"

	"github.com/countersign-dev/countersign/schemas/internal/schematest"
)

func BenchmarkValidate(b *testing.B) {
	compiled := libraries(b)
	for _, bm := range []struct{ label, schema, protocol string }{
		{"aaep", "aaep/agent.tool.invoked", "aaep"},
		{"agenthook", "agenthook/envelope", "agenthook"},
		{"profile", "agenthook/action-governance.evidence", "agenthook"},
	} {
		value := schematest.Message(b, bm.protocol)
		b.Run(bm.label, func(b *testing.B) {
			r := Default()
			b.ReportAllocs()
			for b.Loop() {
				if vs := r.Validate(bm.schema, value); vs != nil {
					b.Fatal(vs)
				}
			}
		})
		library, tree := compiled[bm.schema], value.Tree()
		b.Run(bm.label+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := library.Validate(tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// libraries are the schemas as the library compiled them: the oracle.
func libraries(tb testing.TB) map[string]*librarySchema {
	tb.Helper()
	sources, err := readSources(protocols)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := newLibrary(sources)
	if err != nil {
		tb.Fatal(err)
	}
	compiled := map[string]*librarySchema{}
	for name := range sources {
		if compiled[name], err = c.Compile(Base + name + "/v1"); err != nil {
			tb.Fatal(err)
		}
	}
	return compiled
}
