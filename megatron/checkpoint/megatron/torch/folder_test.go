package torch

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

const iteration = "iter_0000002"

func copied(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "good"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func readAll(dir string) (int, error) {
	src, err := Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return 0, err
	}
	defer src.Close()
	if err := checkpoint.Check(src); err != nil {
		return 0, err
	}
	for _, t := range src.Tensors() {
		if _, err := checkpoint.ReadAll(src, t); err != nil {
			return 0, err
		}
	}
	return len(src.Tensors()), nil
}

// A save of Megatron-LM's own is read completely, from each of its folders and files.
func TestGood(t *testing.T) {
	dir := copied(t)
	for _, path := range []string{dir, filepath.Join(dir, iteration), filepath.Join(dir, iteration, "mp_rank_01"), filepath.Join(dir, iteration, "mp_rank_00", rankFile)} {
		if n, err := readAll(path); err != nil || n != 16 {
			t.Errorf("%s: %d tensors, %v", path, n, err)
		}
	}
}

// What is missing or damaged is refused, with its name.
func TestDamage(t *testing.T) {
	first, second := filepath.Join(iteration, "mp_rank_00", rankFile), filepath.Join(iteration, "mp_rank_01", rankFile)
	for name, c := range map[string]struct {
		file   string
		change func([]byte) []byte // nil: removed
		says   string
	}{
		"first rank missing":  {first, nil, "mp_rank_00"},
		"second rank missing": {second, nil, "mp_rank_01"},
		"cut":                 {second, func(b []byte) []byte { return b[:len(b)/2] }, "mp_rank_01"},
		"empty":               {second, func([]byte) []byte { return []byte{} }, "mp_rank_01"},
		"tracker":             {checkpoint.TrackerName, func([]byte) []byte { return []byte("7") }, "iter_0000007"},
		"tracker no number":   {checkpoint.TrackerName, func([]byte) []byte { return []byte("x") }, checkpoint.TrackerName},
		"no tracker":          {checkpoint.TrackerName, nil, checkpoint.TrackerName},
	} {
		dir := copied(t)
		path := filepath.Join(dir, c.file)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.change == nil {
			err = os.Remove(path)
		} else {
			err = os.WriteFile(path, c.change(good), 0o666)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = readAll(dir)
		if code := exitcode.CodeOf(err); code != exitcode.BadData && code != exitcode.NoInput || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %s", name, err, c.says)
		}
	}
}

// A given iteration has no substitute.
func TestStepIsObeyed(t *testing.T) {
	dir := copied(t)
	if _, err := Open(dir, checkpoint.OpenOptions{Step: 3}); exitcode.CodeOf(err) != exitcode.NoInput || !strings.Contains(err.Error(), "iter_0000003") {
		t.Errorf("got %v", err)
	}
	src, err := Open(dir, checkpoint.OpenOptions{Step: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if n := src.State().Iteration; n != 2 {
		t.Errorf("iteration %d", n)
	}
}

// rewritten changes what a rank's file of dir holds.
func rewritten(t *testing.T, dir, rank string, change func(root *pickle.Dict)) {
	t.Helper()
	path := filepath.Join(dir, iteration, rank, rankFile)
	f, err := pickle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	root := f.Root.(*pickle.Dict)
	change(root)
	var out bytes.Buffer
	if _, err := pickle.Save(t.Context(), &out, "model_optim_rng", root); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

const someNorm = "decoder.layers.0.input_layernorm.weight"

func inModel(change func(model *pickle.Dict)) func(*pickle.Dict) {
	return func(root *pickle.Dict) {
		v, _ := root.Get("model")
		change(v.(*pickle.Dict))
	}
}

// Versions that do not exist are refused; a part that one rank lacks is named with
// that rank's file.
func TestRankFaults(t *testing.T) {
	for name, c := range map[string]struct {
		says   []string
		change func(*pickle.Dict)
	}{
		"version 1":  {[]string{"mp_rank_01", "checkpoint_version is 1"}, func(r *pickle.Dict) { r.Set("checkpoint_version", int64(1)) }},
		"version 99": {[]string{"mp_rank_01", "checkpoint_version is 99"}, func(r *pickle.Dict) { r.Set("checkpoint_version", 99.0) }},
		"tensor gone": {[]string{"linear_qkv.weight", "not in", "mp_rank_01"}, inModel(func(m *pickle.Dict) {
			m.Pairs = slices.DeleteFunc(m.Pairs, func(p pickle.Pair) bool { return p.Key == "decoder.layers.0.self_attention.linear_qkv.weight" })
		})},
	} {
		dir := copied(t)
		rewritten(t, dir, "mp_rank_01", c.change)
		_, err := readAll(dir)
		for _, part := range c.says {
			if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want it to say %s", name, err, part)
			}
		}
	}
}

// Norms that have diverged between ranks, and folders of another layout, are reported.
func TestRankNotes(t *testing.T) {
	dir := copied(t)
	rewritten(t, dir, "mp_rank_01", inModel(func(m *pickle.Dict) { m.Set(someNorm, pickle.Constant("F32", []int64{8}, make([]byte, 32))) }))
	if err := os.Mkdir(filepath.Join(dir, iteration, "mp_rank_02"), 0o777); err != nil {
		t.Fatal(err)
	}
	src, err := Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	notes := strings.Join(src.Info().Notes, "\n")
	for _, part := range []string{"mp_rank_02", "1 copies", someNorm, "mp_rank_01"} {
		if !strings.Contains(notes, part) {
			t.Errorf("the notes do not say %s: %s", part, notes)
		}
	}
}
