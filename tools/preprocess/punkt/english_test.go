package punkt

import (
	"slices"
	"testing"
)

// Claim: without NLTK's data English is split by the parameters that are built
// in; another language is an error.
func TestBuiltInEnglish(t *testing.T) {
	t.Setenv("NLTK_DATA", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	p, err := Find("english")
	if err != nil {
		t.Fatal(err)
	}
	got := NewSplitter(p, false).Split("Dr. Smith met Mr. Jones on Jan. 5 at 3 p.m. in the U.S. embassy. They talked, e.g. about Inc. 500 lists. \"Fine!\" she said.")
	want := []string{"Dr. Smith met Mr. Jones on Jan. 5 at 3 p.m. in the U.S. embassy.", "They talked, e.g.", "about Inc. 500 lists.", "\"Fine!\"", "she said."}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := Find("klingon"); err == nil {
		t.Error("a language without parameters was found")
	}
}
