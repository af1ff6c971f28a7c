package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// blended is a folder with datasets a to e of different lengths, and a blend of them under three splits.
func blended(t *testing.T) (cfg Config, num [3]*int64, notes *[]string) {
	t.Helper()
	dir := t.TempDir()
	var words []string
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		var documents [][]int32
		for n := range 200 + 30*i {
			documents = append(documents, make([]int32, 5+n%17))
		}
		write(t, filepath.Join(dir, name), U16, documents)
		words = append(words, fmt.Sprint(i+1), name)
	}
	notes = &[]string{}
	cfg = Config{Dir: dir, DataPath: words, Split: "8,1,1", SequenceLength: 16, Seed: 7, CachePath: "cache", Notice: func(text string) { *notes = append(*notes, text) }}
	return cfg, [3]*int64{count(700), count(30), count(20)}, notes
}

// contents are all arrays of the splits of a blend.
func contents(t *testing.T, cfg Config, num [3]*int64) (text string) {
	t.Helper()
	train, valid, test, err := Build(cfg, null(t, 1000), num)
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []Dataset{train, valid, test} {
		for _, a := range set.(*Blended).arrays() {
			text += fmt.Sprint(a.DType, a.Shape, values(*a), "\n")
		}
	}
	return text
}

func cached(t *testing.T, cfg Config) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(cfg.Dir, "cache"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Claim (docs/data.md): the cache of a blend is one file a split, however many datasets it has, with the arrays that
// are built without a cache; the next start maps it.
func TestBlendIsCachedInOneFile(t *testing.T) {
	cfg, num, notes := blended(t)
	plain := cfg
	plain.NoCache = true
	want := contents(t, plain, num)
	*notes = nil
	for i := range 2 {
		if got := contents(t, cfg, num); got != want {
			t.Fatalf("start %d: the arrays differ from those without a cache", i)
		}
		names := cached(t, cfg)
		if len(names) != 3 || !slices.Equal(names, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasSuffix(n, "-arrays.bin") })) {
			t.Fatalf("start %d: the cache has %v", i, names)
		}
		for _, name := range names { // so that a file that is written again shows
			if err := os.Chmod(filepath.Join(cfg.Dir, "cache", name), 0o444); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, name := range cached(t, cfg) {
		if st, err := os.Stat(filepath.Join(cfg.Dir, "cache", name)); err != nil || st.Mode().Perm() != 0o444 {
			t.Errorf("%s was written again: %v %v", name, st.Mode(), err)
		}
	}
	if slices.ContainsFunc(*notes, func(n string) bool { return strings.Contains(n, "rebuilt") }) {
		t.Errorf("notes: %q", *notes)
	}
}

// Claim (docs/data.md): a cache in Megatron's form, which earlier versions wrote, is read, and no other is written.
func TestBlendInMegatronsFormIsRead(t *testing.T) {
	cfg, num, _ := blended(t)
	plain := cfg
	plain.NoCache = true
	want := contents(t, plain, num)
	train, valid, test, err := Build(plain, null(t, 1000), num)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(cfg.Dir, "cache")
	for _, set := range []Dataset{train, valid, test} {
		if err := set.(*Blended).WriteMegatron(folder); err != nil {
			t.Fatal(err)
		}
	}
	before := cached(t, cfg)
	if got := contents(t, cfg, num); got != want || len(before) != 3*(5*4+3) || !slices.Equal(cached(t, cfg), before) {
		t.Errorf("%d files, then %d; same arrays: %v", len(before), len(cached(t, cfg)), got == want)
	}
	// One that lacks a file counts for nothing.
	if err := os.Remove(filepath.Join(folder, before[0])); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, cfg, num); got != want || len(cached(t, cfg)) != len(before) { // one removed, one written
		t.Errorf("%d files; same arrays: %v", len(cached(t, cfg)), got == want)
	}
}

// Claim (docs/data.md): a file that is cut, of another form, or whose entries do not fit the data, is rebuilt.
func TestDamagedBlendIsRebuilt(t *testing.T) {
	cfg, num, notes := blended(t)
	want := contents(t, cfg, num)
	name := slices.DeleteFunc(cached(t, cfg), func(n string) bool { return !strings.Contains(n, "-train-") })[0]
	path := filepath.Join(cfg.Dir, "cache", name)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	train, _, _, err := Build(cfg, null(t, 1000), num)
	if err != nil {
		t.Fatal(err)
	}
	b := train.(*Blended)
	_, at := b.blendHeader(b.shapes())
	for what, damage := range map[string]func(file []byte) []byte{
		"cut":                       func(f []byte) []byte { return f[:len(f)-1] },
		"longer":                    func(f []byte) []byte { return append(f, 0) },
		"empty":                     func([]byte) []byte { return nil },
		"of another program":        func(f []byte) []byte { f[0]++; return f },
		"of another blend":          func(f []byte) []byte { f[len(blendMagic)]++; return f },
		"with another shape":        func(f []byte) []byte { f[len(blendMagic)+32+8+4]++; return f },
		"with a wrong document":     func(f []byte) []byte { f[at[3]+3] = 1; return f },
		"with a wrong sample":       func(f []byte) []byte { f[at[4]+8] ^= 1; return f },
		"with a wrong member":       func(f []byte) []byte { f[at[len(at)-3]+20] = 99; return f },
		"with a wrong member's own": func(f []byte) []byte { f[at[len(at)-2]+6] = 1; return f },
	} {
		if err := os.WriteFile(path, damage(slices.Clone(good)), 0o644); err != nil {
			t.Fatal(err)
		}
		if *notes = nil; contents(t, cfg, num) != want {
			t.Errorf("%s: the arrays differ", what)
		}
		if now, err := os.ReadFile(path); err != nil || !slices.Equal(now, good) {
			t.Errorf("%s: the file is not as before: %v", what, err)
		}
		if entry := strings.Contains(what, "wrong"); entry != slices.ContainsFunc(*notes, func(n string) bool { return strings.Contains(n, "rebuilt") }) {
			t.Errorf("%s: notes %q", what, *notes)
		}
	}
}
