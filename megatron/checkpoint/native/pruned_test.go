package native

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Claim: while a run saves and keeps one checkpoint, the latest can be read at any
// moment, in every way: loaded, opened, listed with its values.
func TestReadingDuringPruning(t *testing.T) {
	dir := fastDir(t)
	mustSave(t, dir, 1, SaveOptions{})
	stop, saved := make(chan struct{}), make(chan int64)
	own := newDevice(t)
	go func() {
		step := int64(1)
		for done := false; !done; step++ {
			list := tensors(t, own, single, step+1, true)
			_, err := Save(context.Background(), dir, stateAt(step+1), list, own, SaveOptions{KeepLast: 1})
			if free(own, list); err != nil {
				t.Error(err)
				break
			}
			select {
			case <-stop:
				done = true
			default:
			}
		}
		saved <- step
	}()
	reads := 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && !t.Failed(); reads++ {
		if _, _, err := load(t, dir, -1); err != nil {
			t.Error("Load:", err)
		}
		if f, err := OpenSound(dir, -1); err != nil {
			t.Error("OpenSound:", err)
		} else {
			f.Close()
		}
		if err := readSource(dir); err != nil {
			t.Error("OpenSource:", err)
		}
		if err := Verify(dir, -1); err != nil {
			t.Error("Verify:", err)
		}
	}
	close(stop)
	t.Logf("%d times four readings beside %d saves", reads, <-saved)
}

// readSource reads every tensor as convert does.
func readSource(dir string) error {
	src, err := OpenSource(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return err
	}
	defer src.Close()
	for _, have := range src.Tensors() {
		box := mpu.Piece{From: make([]int64, len(have.Shape)), Size: have.Shape}
		if err := src.Read(have.Name, box, make([]byte, have.Bytes())); err != nil {
			return err
		}
	}
	return nil
}

// Claim: a checkpoint that was asked for by its iteration and is removed meanwhile is said
// to be removed, not damaged.
func TestPrunedIsNotDamaged(t *testing.T) {
	dir := fastDir(t)
	mustSave(t, dir, 1, SaveOptions{})
	f, err := OpenFolder(iterPath(dir, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.RemoveAll(iterPath(dir, 1)); err != nil {
		t.Fatal(err)
	}
	var pruned *Pruned
	var damage *Damage
	err = f.Verify()
	if !errors.As(err, &pruned) || errors.As(err, &damage) || exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("%v, code %d", err, exitcode.CodeOf(err))
	}
	if _, err := Save(context.Background(), dir, stateAt(2), nil, newDevice(t), SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenFolder(iterPath(dir, 1)); !errors.As(err, &pruned) {
		t.Error(err)
	}
}
