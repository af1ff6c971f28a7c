package store_test

import (
	"context"
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

// TestRates measures an object of 256 MiB on its way to and from a server in this process: with this package, with
// boto3, and with a folder of the local disk, in turn. MONOTRON_RATES names a Python with boto3 (tests/proofs/data/bucket.sh).
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
	dir := t.TempDir()
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
	ours := func(s store.Store, send bool) (float64, error) {
		began := time.Now()
		var err error
		if send {
			_, err = store.Send(context.Background(), s, from, "object", store.When{})
		} else {
			_, err = store.Fetch(context.Background(), s, "object", to)
		}
		return time.Since(began).Seconds(), err
	}
	folder := store.Folder{Root: filepath.Join(dir, "folder")}
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
