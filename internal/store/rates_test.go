package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"monotron/internal/store"
	"monotron/internal/store/storetest"
)

// TestRates measures an object of 256 MiB on its way to and from a server in this process: with this package and with
// boto3, from and to files in memory, and with a folder of the local disk, in turn. MONOTRON_RATES names a Python with boto3
// (tests/proofs/data/bucket.sh).
func TestRates(t *testing.T) {
	python := os.Getenv("MONOTRON_RATES")
	if python == "" {
		t.Skip("tests/proofs/data/bucket.sh measures rates")
	}
	const size, rounds = 256 << 20, 5
	storetest.New(t)
	bucket, err := store.Connect("s3://"+storetest.Bucket+"/rates", store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "rates-")
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	disk := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, noise(size), 0o600); err != nil {
		t.Fatal(err)
	}
	rates := map[string][]float64{}
	timed := func(name string, do func() (seconds float64, err error)) {
		_ = os.Remove(to) // it may not be there
		seconds, err := do()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rates[name] = append(rates[name], size/seconds/1e6)
	}
	peer := func(command, path, key string) (float64, error) {
		out, err := exec.Command(python, "../../tests/proofs/data/bucket.py", command, path, storetest.Bucket, key).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w: %s", err, out)
		}
		return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	}
	folder := store.Folder{Root: filepath.Join(disk, "folder")}
	ours := func(s store.Store, send bool) (float64, error) {
		to := to
		if s == folder {
			to = filepath.Join(disk, "to")
		}
		began := time.Now()
		var err error
		if send {
			_, err = store.Send(context.Background(), s, from, "object", store.When{})
		} else {
			_, err = store.Fetch(context.Background(), s, "object", to)
		}
		seconds := time.Since(began).Seconds()
		if !send {
			err = errors.Join(err, os.Remove(to))
		}
		return seconds, err
	}
	for range rounds {
		timed("put, monotron", func() (float64, error) { return ours(bucket, true) })
		timed("put, boto3", func() (float64, error) { return peer("put", from, "boto3") })
		timed("put, local disk", func() (float64, error) { return ours(folder, true) })
		timed("get, monotron", func() (float64, error) { return ours(bucket, false) })
		timed("get, boto3", func() (float64, error) { return peer("get", to, "boto3") })
		timed("get, local disk", func() (float64, error) { return ours(folder, false) })
	}
	for _, name := range []string{"put, monotron", "put, boto3", "put, local disk", "get, monotron", "get, boto3", "get, local disk"} {
		slices.Sort(rates[name])
		t.Logf("%-16s %.0f MB/s in the median of %d, %.0f to %.0f", name, rates[name][rounds/2], rounds, rates[name][0], rates[name][rounds-1])
	}
}
