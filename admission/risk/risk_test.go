package risk

import "testing"

func TestWords(t *testing.T) {
	for word, want := range map[string]Level{
		"": Unstated, "none": Low, "read_only": Low, "moderate": Medium, "medium": High, "write": Medium,
		"publication": High, "high": High, "HIGH": High, "unheard_of": High,
	} {
		if got := LevelOf(word); got != want {
			t.Errorf("%q is %v, want %v", word, got, want)
		}
	}
	for l, want := range map[Level]string{Unstated: "", Low: "low", Medium: "medium", High: "high"} {
		if l.String() != want || ParseLevel(want) != l {
			t.Errorf("level %d is %q and reads as %v", l, l, ParseLevel(want))
		}
	}
	if ParseLevel("extreme") != High {
		t.Error("a level that nobody knows")
	}
	if !Irreversible("publication") || Irreversible("write") || !HasExternalEffect("external_transfer") || HasExternalEffect("publication") {
		t.Error("what cannot be taken back")
	}
}
