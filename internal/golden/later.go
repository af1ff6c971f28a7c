package golden

import "testing"

// Models are the cases of golden/model whose config.json the program does not
// read yet, each with what it lacks. Who adds a family takes its cases out.
var Models = Later{}

// Lines are the cases of golden/model whose command lines do not parse yet.
var Lines = Later{}

// Later is cases by name, each with what the program lacks for it.
type Later map[string]string

// Failed tells whether a case ended in err, as one of the list must and no other
// may: a case that is ahead of the list is a failure too.
func (l Later) Failed(t testing.TB, name string, err error) bool {
	t.Helper()
	switch lacks, listed := l[name]; {
	case err != nil && !listed:
		t.Errorf("%s: %v", name, err)
	case err == nil && listed:
		t.Errorf("%s works now: take it (%q) out of the list in package golden", name, lacks)
	}
	return err != nil
}

// Seen fails on a case of the list that is none of those found.
func (l Later) Seen(t testing.TB, found map[string]bool) {
	t.Helper()
	for name := range l {
		if !found[name] {
			t.Errorf("the list in package golden names %s, which is not a case", name)
		}
	}
}
