package cgroup

import (
	"syscall"
	"testing"
)

// Claim: connections of others get a part of the files that may be open, one at least.
func TestFiles(t *testing.T) {
	const most = 256
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	for cur, want := range map[uint64]int{3: 1, 11: 2, files.Max: int(min(most, files.Max/4))} {
		few := files
		few.Cur = cur
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
			t.Fatal(err)
		}
		got := Files(4, most)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("of %d files: %d places, want %d", cur, got, want)
		}
	}
}
