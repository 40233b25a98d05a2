package token

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
)

// The pages of a view have every record once, whatever their number, and a known view has none.
func TestPagesOfAView(t *testing.T) {
	for _, n := range []int{0, 1, 3, 5000} {
		all := map[string][]byte{}
		for i := range n {
			all[fmt.Sprintf("%020x", i*7919)] = fmt.Appendf(nil, `{"sha256":%q}`, bytes.Repeat([]byte{'a'}, 200))
		}
		view, got, pages := NewView(all), map[string][]byte{}, 0
		for req := (ViewRequest{}); ; pages++ {
			page, size := view.Page(req), 0
			for id, record := range page.Records {
				if got[id] != nil {
					t.Fatalf("%d records: %s comes twice", n, id)
				}
				got[id], size = record, size+len(record)
			}
			if size > pageBytes || page.View != view.name {
				t.Fatalf("%d records: a page of %d bytes, view %s", n, size, page.View)
			}
			if req.After = page.Next; req.After == "" {
				break
			}
		}
		if !maps.EqualFunc(got, all, bytes.Equal) || (n == 5000) != (pages > 1) {
			t.Errorf("%d of %d records on %d pages", len(got), n, pages+1)
		}
		if page := view.Page(ViewRequest{Known: view.name}); page.Records != nil || page.View != view.name {
			t.Errorf("%d records: a known view has %d records", n, len(page.Records))
		}
	}
	one := map[string][]byte{"a": []byte(`{}`)}
	if page := NewView(map[string][]byte{"a": []byte(`{}`), "b": []byte(`{`)}).Page(ViewRequest{}); len(page.Records) != 1 {
		t.Errorf("a record that is no JSON: %v", page.Records)
	}
	if name := NewView(one).name; name == NewView(map[string][]byte{"a": []byte(`[]`)}).name || name == NewView(map[string][]byte{"b": []byte(`{}`)}).name {
		t.Error("different records have one view")
	}
}
