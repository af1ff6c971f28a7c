//go:build cgo

package comm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// meshes connects n ranks of this process.
func meshes(t testing.TB, n int, limit time.Duration) []*Mesh {
	t.Helper()
	if _, err := os.Stat("../../bin/" + Library); err == nil && os.Getenv("MONOTRON_GLOO") == "" {
		t.Setenv("MONOTRON_GLOO", "../../bin/"+Library)
	}
	if err := Available(); err != nil {
		t.Skip("Gloo is not here: ", err)
	}
	e, err := Open("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	var all []*Mesh
	addresses := make([][]byte, n)
	for rank := range n {
		m, err := e.NewMesh(rank, n, limit)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		if addresses[rank], err = m.Addresses(); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for rank, m := range all {
		var theirs []byte
		for other := range n {
			if other == rank {
				continue
			}
			at := rank
			if rank > other {
				at--
			}
			theirs = append(theirs, addresses[other][at*m.AddressBytes():(at+1)*m.AddressBytes()]...)
		}
		ranks.Go(func() { errs[rank] = m.Connect(theirs) })
	}
	ranks.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return all
}

// Claim: bytes arrive complete, in slots, and Gloo's own sum is the sum.
func TestGlooCarriesAndSums(t *testing.T) {
	ranks := meshes(t, 3, 10*time.Second)
	var all sync.WaitGroup
	for rank, m := range ranks {
		all.Go(func() {
			next, last := (rank+1)%3, (rank+2)%3
			got := make([]byte, 5_000_001)
			sent := bytes.Repeat([]byte{byte(rank + 1)}, len(got))
			var send sync.WaitGroup
			send.Go(func() {
				if err := m.Send(next, 7, sent); err != nil {
					t.Error(err)
				}
			})
			if err := m.Recv(last, 7, got); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(last + 1)}, len(got))) {
				t.Errorf("rank %d: %v, starts with %d", rank, err, got[0])
			}
			send.Wait()
			sum := []float32{float32(rank), 1, -2}
			if err := m.AllReduce(unsafe.Pointer(&sum[0]), 3, F32, Sum); err != nil || sum[0] != 3 || sum[1] != 3 || sum[2] != -6 {
				t.Errorf("rank %d: %v, %v", rank, err, sum)
			}
		})
	}
	all.Wait()
}

// Claim: a wait ends at its deadline, by Abort from another goroutine, and when
// the peer is gone, each with an error and no exception.
func TestGlooWaitsEnd(t *testing.T) {
	buffer := make([]byte, 1<<20)
	late := meshes(t, 2, 2*time.Second)
	if err := late[0].Recv(1, 1, buffer); err == nil || !strings.Contains(err.Error(), "Timed out") {
		t.Errorf("the deadline: %v", err)
	}
	aborted := meshes(t, 2, time.Minute)
	time.AfterFunc(100*time.Millisecond, aborted[0].Abort)
	start := time.Now()
	if err := aborted[0].Recv(1, 1, buffer); err == nil || !strings.Contains(err.Error(), "this rank aborted the group") {
		t.Errorf("abort: %v", err)
	}
	if err := aborted[0].Send(1, 2, buffer); err == nil {
		t.Error("a send after abort")
	}
	dead := meshes(t, 2, time.Minute)
	time.AfterFunc(100*time.Millisecond, dead[1].Close)
	if err := dead[0].Recv(1, 1, buffer); err == nil {
		t.Error("a peer that is gone sends")
	}
	if took := time.Since(start); took > 40*time.Second {
		t.Errorf("it took %v", took)
	}
}

func BenchmarkGlooAllReduce64MB(b *testing.B) {
	ranks := meshes(b, 2, time.Minute)
	data := [2][]float32{make([]float32, 16<<20), make([]float32, 16<<20)}
	b.SetBytes(64 << 20)
	for b.Loop() {
		var all sync.WaitGroup
		for rank, m := range ranks {
			all.Go(func() {
				if err := m.AllReduce(unsafe.Pointer(&data[rank][0]), 16<<20, F32, Sum); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
}

// Claim: a peer that ends while Gloo writes to it does not end this process: the threads
// that Gloo starts have SIGPIPE blocked, so that such a write fails with EPIPE.
func TestThreadsBlockSIGPIPE(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc, which this system does not have")
	}
	before := blockingSIGPIPE(t)
	meshes(t, 2, time.Minute)
	if after := blockingSIGPIPE(t); after <= before {
		t.Errorf("%d threads block SIGPIPE, %d before Gloo was opened; want more", after, before)
	}
}

// blockingSIGPIPE counts the threads of this process that have SIGPIPE blocked and SIGURG
// not: Go's runtime blocks all signals while it starts a thread.
func blockingSIGPIPE(t *testing.T) (count int) {
	t.Helper()
	threads, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range threads {
		status, err := os.ReadFile(name)
		if err != nil {
			continue // a thread that has ended
		}
		_, mask, found := strings.Cut(string(status), "SigBlk:\t")
		if !found {
			t.Fatalf("%s has no SigBlk", name)
		}
		mask, _, _ = strings.Cut(mask, "\n")
		blocked, err := strconv.ParseUint(mask, 16, 64)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if blocked>>(syscall.SIGPIPE-1)&1 == 1 && blocked>>(syscall.SIGURG-1)&1 == 0 {
			count++
		}
	}
	return count
}
