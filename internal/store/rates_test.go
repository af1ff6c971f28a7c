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

// BenchmarkRates measures an object of 256 MiB on its way to and from a server in this process: with this package and
// with boto3, from and to files in memory, and with a folder of the local disk, in turn. PYTHON names a Python with
// boto3 (tests/proofs/data/bucket.sh); without it boto3 is left out. Run it with -benchtime 5x for medians of five rounds.
func BenchmarkRates(b *testing.B) {
	const size = 256 << 20
	storetest.New(b)
	bucket, err := store.Connect("s3://"+storetest.Bucket+"/rates", store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	dir, err := os.MkdirTemp("/dev/shm", "rates-")
	if err != nil {
		dir = b.TempDir()
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	disk, python := b.TempDir(), os.Getenv("PYTHON")
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	if err := os.WriteFile(from, noise(size), 0o600); err != nil {
		b.Fatal(err)
	}
	rates := map[string][]float64{}
	timed := func(name string, do func() (seconds float64, err error)) {
		_ = os.Remove(to) // it may not be there
		seconds, err := do()
		if err != nil {
			b.Fatalf("%s: %v", name, err)
		}
		rates[name] = append(rates[name], size/seconds/1e6)
	}
	peer := func(command, path string) {
		if python == "" {
			return
		}
		timed(command+"-boto3", func() (float64, error) {
			out, err := exec.Command(python, "../../tests/proofs/data/bucket.py", command, path, storetest.Bucket, "boto3").CombinedOutput()
			if err != nil {
				return 0, fmt.Errorf("%w: %s", err, out)
			}
			return strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
		})
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
	for b.Loop() {
		timed("put-monotron", func() (float64, error) { return ours(bucket, true) })
		peer("put", from)
		timed("put-disk", func() (float64, error) { return ours(folder, true) })
		timed("get-monotron", func() (float64, error) { return ours(bucket, false) })
		peer("get", to)
		timed("get-disk", func() (float64, error) { return ours(folder, false) })
	}
	for name, all := range rates {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], name+"-MB/s")
		b.ReportMetric(all[0], name+"-least-MB/s")
		b.ReportMetric(all[len(all)-1], name+"-most-MB/s")
	}
	b.ReportMetric(0, "ns/op")
}
