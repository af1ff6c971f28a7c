package pretrain

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/internal/store/storetest"
)

// bucket starts a server and gives this host an empty cache.
func bucket(t *testing.T, dir string) *storetest.Server {
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	return storetest.New(t)
}

// newHost takes away all that this host has kept.
func newHost(t *testing.T, dir string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, "cache")); err != nil {
		t.Fatal(err)
	}
}

// Claim (docs/object-storage.md): a run of two ranks that saves to a bucket, and continues from it on another host
// under another layout, has the losses and weights of a run that saves to a folder.
func TestBucketContinuesBitForBit(t *testing.T) {
	for name, flags := range map[string]string{
		"ranks": "--world-size 2 --use-distributed-optimizer",
		"async": "--world-size 2 --tensor-model-parallel-size 2 --async-save",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			bucket(t, dir)
			base := tiny + someData + flags + " --save-interval 2 --keep-last 2 "
			full := numbers(must(t, dir, base+"--save DIR/whole").out)
			const url = "--save s3://tests/run/a --load s3://tests/run/a "
			first := must(t, dir, base+url+"--exit-interval 4")
			if !strings.Contains(first.notes, "there is no checkpoint in s3://tests/run/a; training starts from random weights") || !strings.Contains(first.notes, "copied iteration 4 to s3://tests/run/a") {
				t.Errorf("notes:\n%s", first.notes)
			}
			newHost(t, dir)
			second := must(t, dir, base+url+"--save-local-dir DIR/stage")
			if !strings.Contains(second.notes, "downloaded iteration 4 of s3://tests/run/a to "+filepath.Join(dir, "stage")) {
				t.Errorf("notes:\n%s", second.notes)
			}
			got := append(numbers(first.out), numbers(second.out)...)
			if a, b := strings.Join(got, "\n"), strings.Join(full, "\n"); a != b {
				t.Errorf("in parts\n%s\nat once\n%s", a, b)
			}
			want := weights(t, filepath.Join(dir, "whole"))
			if have := weights(t, filepath.Join(dir, "stage")); have != want {
				t.Errorf("weights %s, want %s", have, want)
			}
			must(t, dir, tiny+someData+flags+" --load s3://tests/run/a --save DIR/end --train-iters 6")
			if have := weights(t, filepath.Join(dir, "end")); have != want {
				t.Errorf("fetched: weights %s, want %s", have, want)
			}
			if text := first.notes + second.notes; strings.Contains(text, storetest.Secret) {
				t.Error("the notes have the secret")
			}
		})
	}
}

// Claim: --resume-from-save and --use-checkpoint-args work with a bucket; what only the local folder has does not count.
func TestBucketResumes(t *testing.T) {
	dir := t.TempDir()
	server := bucket(t, dir)
	base := tiny + someData + "--save-interval 2 --save s3://tests/b --resume-from-save "
	full := numbers(must(t, dir, tiny+someData+"--save DIR/whole").out)
	first := must(t, dir, base+"--exit-interval 2")
	server.Fault(func(r *http.Request) storetest.Kind { // from here on nothing is complete in the bucket
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "iter_0000004") {
			return storetest.Denied
		}
		return storetest.None
	})
	failed := call(t, dir, base+"--exit-interval 4")
	if failed.code() != exitcode.IO || !strings.Contains(failed.err.Error(), "s3://tests/b/iter_0000004/rank_00000.safetensors") || !strings.Contains(failed.err.Error(), "403") {
		t.Fatal(failed.err)
	}
	server.Fault(nil)
	second := must(t, dir, base)
	if a, b := strings.Join(append(numbers(first.out), numbers(second.out)...), "\n"), strings.Join(full, "\n"); a != b {
		t.Errorf("in parts\n%s\nat once\n%s", a, b)
	}
	newHost(t, dir)
	r := must(t, dir, "--use-checkpoint-args --load s3://tests/b --train-iters 6 --device ref --cpu-threads 1 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --eval-iters 0 "+someData)
	if !strings.Contains(r.notes, "iteration 6") {
		t.Error(r.notes)
	}
}

// Claim: an upload that takes longer than --stall-seconds is not a stall.
func TestBucketIsSlow(t *testing.T) {
	dir := t.TempDir()
	server := bucket(t, dir)
	server.Fault(func(r *http.Request) storetest.Kind {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "manifest.json") {
			time.Sleep(7 * time.Second)
		}
		return storetest.None
	})
	must(t, dir, tiny+someData+"--world-size 2 --save s3://tests/slow --exit-interval 1 --stall-seconds 3")
}

// Claim: what does not work with a bucket is refused by name, before anything is sent.
func TestBucketRefusals(t *testing.T) {
	dir := t.TempDir()
	server := bucket(t, dir)
	var sent atomic.Int64
	server.Fault(func(*http.Request) storetest.Kind { sent.Add(1); return storetest.None })
	for line, want := range map[string]string{
		"--save s3://": "s3://bucket/prefix",
		"--save s3://tests/a --ckpt-format torch":  "--ckpt-format torch cannot be combined with --save s3://tests/a: only native checkpoints",
		"--save DIR/x --save-on-load s3://tests/a": "--save-on-load must be a folder, not s3://tests/a",
		"--save s3://user:geheim@tests/a":          "not an address",
		"--load s3://tests/../a":                   "the prefix",
	} {
		r := call(t, dir, tiny+someData+line)
		if r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), want) || strings.Contains(r.err.Error(), "geheim") {
			t.Errorf("%s: %v", line, r.err)
		}
	}
	if sent.Load() != 0 {
		t.Errorf("%d requests", sent.Load())
	}
	r := call(t, dir, tiny+someData+"--load s3://tests/none")
	if r.code() != exitcode.NoInput || !strings.Contains(r.err.Error(), "--allow-missing-load") {
		t.Error(r.err)
	}
	r = call(t, dir, tiny+someData+"--save s3://missing/a")
	if r.code() != exitcode.IO && r.code() != exitcode.NoInput || !strings.Contains(r.err.Error(), "s3://missing/a") {
		t.Error(r.code(), r.err)
	}
}

// Claim (docs/object-storage.md): data in a bucket gives the losses of the same data in files. It is fetched once for all ranks
// and runs of a host, through faults; an object that was replaced since is named.
func TestBucketData(t *testing.T) {
	dir := t.TempDir()
	server := bucket(t, dir)
	if err := writeCorpus(dir, "corpus", 90, 110, 120, 80, 100, 70, 130, 100, 95, 105); err != nil {
		t.Fatal(err)
	}
	s, err := store.Connect("s3://tests/data", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(end string) {
		t.Helper()
		if _, err := store.Send(context.Background(), s, filepath.Join(dir, "corpus"+end), "corpus"+end, store.When{}); err != nil {
			t.Fatal(err)
		}
	}
	put(".idx")
	put(".bin")
	base := tiny + strings.Replace(someData, strings.Fields(someData)[1], "PREFIX", 1) + "--world-size 2 "
	line := func(prefix string) string { return strings.Replace(base, "PREFIX", prefix, 1) }
	want := numbers(must(t, dir, line("DIR/corpus")).out)
	var reads, spoiled atomic.Int64
	server.Fault(func(r *http.Request) storetest.Kind {
		if r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, ".bin") {
			return storetest.None
		}
		if reads.Add(1) == 1 {
			spoiled.Add(1)
			return storetest.CutAnswer
		}
		return storetest.None
	})
	first := must(t, dir, line("s3://tests/data/corpus"))
	second := must(t, dir, line("1.0 s3://tests/data/corpus")+"--object-storage-cache-path DIR/objects")
	third := must(t, dir, line("s3://tests/data/corpus"))
	if a, b := strings.Join(numbers(first.out), "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("from the bucket\n%s\nfrom files\n%s", a, b)
	}
	if a, b := strings.Join(numbers(third.out), "\n"), strings.Join(want, "\n"); a != b {
		t.Errorf("from the cache\n%s\nfrom files\n%s", a, b)
	}
	if _, err := os.Stat(filepath.Join(dir, "objects", "tests", "data", "corpus.bin")); err != nil || second.err != nil {
		t.Error(err)
	}
	if n := reads.Load(); n != 3 || spoiled.Load() != 1 { // one cut and repeated, one for the other folder
		t.Errorf("%d reads of the tokens, %d cut", n, spoiled.Load())
	}
	if r := call(t, dir, line("s3://tests/data/corpus.bin")); r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "give the common prefix of these two files, s3://tests/data/corpus") {
		t.Errorf("half of a pair: code %d, %v", r.code(), r.err)
	}
	if err := writeCorpus(dir, "corpus", 90, 110, 120, 80, 70, 100, 130, 100, 95, 105); err != nil {
		t.Fatal(err)
	}
	put(".bin")
	r := call(t, dir, line("s3://tests/data/corpus"))
	if r.code() != exitcode.BadData || !strings.Contains(r.err.Error(), "s3://tests/data/corpus.bin was replaced") {
		t.Error(r.code(), r.err)
	}
	r = call(t, dir, line("s3://tests/data/none"))
	if r.code() != exitcode.NoInput || !strings.Contains(r.err.Error(), "s3://tests/data/none.idx") {
		t.Error(r.code(), r.err)
	}
}

// Claim: ranks on several hosts make a checkpoint in one folder, so that --save s3:// needs one that they share.
func TestBucketOfSeveralHosts(t *testing.T) {
	dir := t.TempDir()
	bucket(t, dir)
	for name, value := range map[string]string{"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"} {
		t.Setenv(name, value)
	}
	r := call(t, dir, tiny+someData+"--save s3://tests/hosts")
	if r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "--save-local-dir") {
		t.Error(r.code(), r.err)
	}
}

// Claim (docs/object-storage.md): a run that is planned before it starts makes the requests of one that is not: the plan
// leaves the bucket alone.
func TestPlanLeavesTheBucketAlone(t *testing.T) {
	requests := map[string][]string{}
	for _, plan := range []string{"", "--no-plan"} {
		dir := t.TempDir()
		server := bucket(t, dir)
		var mu sync.Mutex
		server.Fault(func(r *http.Request) storetest.Kind {
			mu.Lock()
			defer mu.Unlock()
			requests[plan] = append(requests[plan], r.Method+" "+r.URL.Path)
			return storetest.None
		})
		must(t, dir, tiny+someData+"--world-size 2 --train-iters 2 --eval-iters 0 --save-interval 2 --save s3://tests/p --load s3://tests/p "+plan)
	}
	if a, b := requests[""], requests["--no-plan"]; len(b) < 5 || !slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))) {
		t.Errorf("with a plan %q, without %q", a, b)
	}
}
