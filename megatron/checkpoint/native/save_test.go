package native

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/mpu"
)

// What one rank saves, it loads: tensors of every stored dtype, state, tracker
// in Megatron's form.
func TestSaveAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	mustSave(t, dir, 50, SaveOptions{})
	if text, err := os.ReadFile(filepath.Join(dir, trackerName)); err != nil || string(text) != "50" {
		t.Errorf("tracker holds %q, %v", text, err)
	}
	if want := []string{"iter_0000050", trackerName}; !slices.Equal(names(t, dir), want) {
		t.Errorf("folder holds %v", names(t, dir))
	}
	step, report, err := load(t, dir, -1)
	if err != nil || step != 50 || len(report.Restored) != len(model) || len(report.Notes) != 0 {
		t.Errorf("loaded %d, %+v, %v", step, report, err)
	}
	if err := Verify(dir, 50); err != nil {
		t.Error(err)
	}
}

// The data file is plain safetensors: uncut tensors under their own names.
func TestFilesAreSafetensors(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 7, SaveOptions{})
	f, err := safetensors.Open(filepath.Join(iterPath(dir, 7), "rank_00000.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := f.Float32("decoder.final_layernorm.bias")
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range got {
		if v != value("decoder.final_layernorm.bias", 7, int64(i)) {
			t.Fatalf("element %d is %v", i, v)
		}
	}
}

// An asynchronous save holds the values of the moment it was called.
func TestAsyncSave(t *testing.T) {
	dir := t.TempDir()
	d := newDevice(t)
	list := tensors(t, d, single, 3, true)
	p, err := SaveAsync(context.Background(), dir, stateAt(3), list, d, SaveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Copied()
	for _, s := range list {
		d.Write(s.Tensor, make([]byte, s.Tensor.Bytes()))
	}
	if report, err := p.Wait(); err != nil || report.Iteration != 3 || !p.Done() {
		t.Fatal(report, err)
	}
	if step, _, err := load(t, dir, -1); step != 3 || err != nil {
		t.Errorf("loaded %d, %v", step, err)
	}
}

// --keep-last and --keep-every: the newest sound ones and multiples stay, newer
// iterations of a run that was rewound are not touched.
func TestPruning(t *testing.T) {
	dir := t.TempDir()
	o := SaveOptions{KeepLast: 2, KeepEvery: 20}
	for step := int64(5); step <= 50; step += 5 {
		mustSave(t, dir, step, o)
	}
	iters := func() []int64 {
		list, err := List(dir)
		if err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, e := range list {
			got = append(got, e.Iteration)
		}
		return got
	}
	if got := iters(); !slices.Equal(got, []int64{20, 40, 45, 50}) {
		t.Errorf("kept %v", got)
	}
	mustSave(t, dir, 42, o) // rewound
	if got := iters(); !slices.Equal(got, []int64{20, 40, 42, 45, 50}) {
		t.Errorf("after a rewind kept %v", got)
	}
	if err := os.Truncate(filepath.Join(iterPath(dir, 50), "rank_00000.safetensors"), 100); err != nil {
		t.Fatal(err)
	}
	mustSave(t, dir, 55, o) // 50 is broken and does not count
	if got := iters(); !slices.Equal(got, []int64{20, 40, 45, 50, 55}) {
		t.Errorf("with a broken one kept %v", got)
	}
	o.Keep = 45
	for step := int64(65); step <= 85; step += 10 {
		mustSave(t, dir, step, o)
	}
	if got := iters(); !slices.Equal(got, []int64{20, 40, 45, 75, 85}) {
		t.Errorf("with 45 to keep kept %v", got)
	}
}

// A part that no rank writes, or two write, is never published.
func TestIncompleteLayoutIsRefused(t *testing.T) {
	for name, change := range map[string]func(s *mpu.Stored){
		"hole": func(s *mpu.Stored) { s.Pieces = rows(s.Global, layout{2, 0, rows}) },
		"twice": func(s *mpu.Stored) {
			s.Pieces = []mpu.Piece{{From: []int64{0, 0}, Size: []int64{13, 4}}, {From: []int64{0, 2}, Size: []int64{13, 2}, Local: 52}}
		},
		"outside":  func(s *mpu.Stored) { s.Pieces[0].From[0] = 1 },
		"nowhere":  func(s *mpu.Stored) { s.Pieces[0].Local = 4 },
		"no shape": func(s *mpu.Stored) { s.Global = nil },
	} {
		dir := t.TempDir()
		mustSave(t, dir, 1, SaveOptions{})
		d := newDevice(t)
		list := tensors(t, d, single, 2, true)
		change(&list[0])
		_, err := Save(context.Background(), dir, stateAt(2), list, d, SaveOptions{})
		if exitcode.CodeOf(err) != exitcode.Internal || !strings.Contains(err.Error(), model[0].name) {
			t.Errorf("%s: %v", name, err)
		}
		if step, _, err := load(t, dir, -1); step != 1 || err != nil || len(leftovers(t, dir)) > 0 {
			t.Errorf("%s: loaded %d, %v, left %v", name, step, err, leftovers(t, dir))
		}
	}
}

// A save that is asked to stop leaves nothing.
func TestStoppedSave(t *testing.T) {
	dir := t.TempDir()
	mustSave(t, dir, 1, SaveOptions{})
	ctx, cancel := context.WithCancelCause(context.Background())
	why := errors.New("rank 3 died")
	cancel(why)
	d := newDevice(t)
	if _, err := Save(ctx, dir, stateAt(2), tensors(t, d, single, 2, true), d, SaveOptions{}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(names(t, dir), []string{"iter_0000001", trackerName}) {
		t.Errorf("left %v", names(t, dir))
	}
}

// A state that is not JSON is our mistake and changes nothing.
func TestBrokenState(t *testing.T) {
	dir := t.TempDir()
	d := newDevice(t)
	st := stateAt(2)
	st.Config = json.RawMessage(`{"lr":`)
	if _, err := Save(context.Background(), dir, st, tensors(t, d, single, 2, true), d, SaveOptions{}); exitcode.CodeOf(err) != exitcode.Internal {
		t.Errorf("got %v", err)
	}
	if len(names(t, dir)) != 0 {
		t.Errorf("left %v", names(t, dir))
	}
}
