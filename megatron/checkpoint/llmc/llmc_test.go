package llmc

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
)

func goldenCase(t *testing.T, name string) checkpoint.Source {
	t.Helper()
	src, err := Open(filepath.Join(golden.Dir(t, "checkpoint"), name), checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// llm.c's own files of version 3 hold the family's weights bit for bit, those of
// version 5 rounded; the state's moments and main parameters follow the golden rule.
func TestGoldenFiles(t *testing.T) {
	family, err := hf.OpenSource(filepath.Join(golden.Dir(t, "checkpoint"), "gpt2-hf-f32"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer family.Close()
	f32, state := goldenCase(t, "gpt2-llmc-f32"), goldenCase(t, "gpt2-llmc-state")
	if got := state.State().Iteration; got != 5 {
		t.Errorf("iteration %d", got)
	}
	rounded := checkpoint.Cast(family, func(checkpoint.Tensor) string { return "BF16" })
	for _, w := range family.Tensors() {
		name := strings.TrimPrefix(w.Name, checkpoint.Model)
		values, err := checkpoint.ReadFloat32(family, w)
		if err != nil {
			t.Fatal(err)
		}
		same(t, f32, w, values)
		half, err := checkpoint.ReadFloat32(rounded, checkpoint.Tensor{Name: w.Name, DType: "BF16", Shape: w.Shape})
		if err != nil {
			t.Fatal(err)
		}
		same(t, state, checkpoint.Tensor{Name: w.Name, DType: "BF16", Shape: w.Shape}, half)
		m, v := make([]float32, len(values)), make([]float32, len(values))
		for i, x := range values {
			m[i], v[i] = x*float32(math.Ldexp(1, -5)), x*x*float32(math.Ldexp(1, -12))
		}
		for prefix, want := range map[string][]float32{checkpoint.ExpAvg: m, checkpoint.ExpSq: v, checkpoint.Main: values} {
			same(t, state, checkpoint.Tensor{Name: prefix + name, DType: "F32", Shape: w.Shape}, want)
		}
	}
}

func same(t *testing.T, src checkpoint.Source, tensor checkpoint.Tensor, want []float32) {
	t.Helper()
	got, err := checkpoint.ReadFloat32(src, tensor)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("%s: element %d is %v, want %v", tensor.Name, i, got[i], want[i])
		}
	}
}

// Writing what was read gives llm.c's own bytes back: model and state.
func TestWriteGivesTheBytesBack(t *testing.T) {
	for name, files := range map[string][]string{
		"gpt2-llmc-f32":   {"model_00000000.bin"},
		"gpt2-llmc-state": {"model_00000005.bin", "state_00000005_00000.bin", "DONE_00000005"},
	} {
		src := goldenCase(t, name)
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Write(context.Background(), out, src, checkpoint.WriteOptions{}); err != nil {
			t.Fatal(name, err)
		}
		for _, file := range files {
			from := filepath.Join(filepath.Dir(src.Info().Path), file)
			if name == "gpt2-llmc-f32" {
				from = src.Info().Path
			}
			want, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(out, file))
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(file, "state") { // its random states have no meaning for us
				got, want = got[headerBytes:], want[headerBytes:]
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: %s differs", name, file)
			}
		}
	}
}

// A state that two ranks with ZeRO share reads like the uncut one.
func TestSharedState(t *testing.T) {
	src := goldenCase(t, "gpt2-llmc-state")
	dir := t.TempDir()
	split(t, filepath.Dir(src.Info().Path), dir, src)
	cut, err := Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Close()
	for _, tensor := range src.Tensors() {
		want, err := checkpoint.ReadAll(src, tensor)
		if err != nil {
			t.Fatal(err)
		}
		got, err := checkpoint.ReadAll(cut, tensor)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s differs, %v", tensor.Name, err)
		}
	}
}

// A save of llm.c's that was killed before its end is refused; so is another rank's
// state under the first one's name.
func TestUnfinishedState(t *testing.T) {
	src := goldenCase(t, "gpt2-llmc-state")
	for name, spoil := range map[string]func(dir string) error{
		"DONE_00000005": func(dir string) error { return os.Remove(filepath.Join(dir, doneName(5))) },
		"rank 1 of 2": func(dir string) error {
			return os.Rename(filepath.Join(dir, "state_00000005_00001.bin"), filepath.Join(dir, "state_00000005_00000.bin"))
		},
	} {
		dir := t.TempDir()
		split(t, filepath.Dir(src.Info().Path), dir, src)
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, checkpoint.OpenOptions{Step: -1}); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want it to name %s", err, name)
		}
	}
}

// split cuts a state file as llm.c's ZeRO 1 does: of every tensor and layer half.
func split(t *testing.T, from, to string, src checkpoint.Source) {
	t.Helper()
	read := func(name string) []byte {
		raw, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	write := func(name string, raw []byte) {
		if err := os.WriteFile(filepath.Join(to, name), raw, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("model_00000005.bin", read("model_00000005.bin"))
	write(doneName(5), nil)
	full := read("state_00000005_00000.bin")
	l := newLayout(src.Info().Model)
	for rank := range int64(2) {
		out := bytes.Clone(full[:headerBytes])
		le.PutUint32(out[8:], 2)
		le.PutUint32(out[12:], uint32(rank))
		for array := range int64(3) {
			for _, name := range l.order {
				p := l.spans[name]
				at := headerBytes + 4*(array*l.total+p.at+rank*p.width/2)
				out = append(out, full[at:at+4*p.width/2]...)
			}
		}
		write([]string{"state_00000005_00000.bin", "state_00000005_00001.bin"}[rank], out)
	}
}

// The faults of golden/checkpoint/bad are refused with what they say.
func TestRefuses(t *testing.T) {
	root := golden.Dir(t, "checkpoint", "bad")
	for name, says := range map[string]string{"llmc-magic": "20240327", "llmc-truncated": "model.bin", "llmc-version": "version 1"} {
		_, err := Open(filepath.Join(root, name), checkpoint.OpenOptions{Step: -1})
		if err == nil || !strings.Contains(err.Error(), says) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v, want it to say %q", name, err, says)
		}
	}
}
