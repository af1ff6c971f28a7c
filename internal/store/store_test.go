package store_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/internal/store/storetest"
)

// quick is a patience for tests: the waits are short, the attempts as many as usual.
var quick = store.Patience{Attempts: 6, Wait: time.Millisecond, MaxWait: 2 * time.Millisecond, Deadline: 5 * time.Second, Floor: 1 << 20}

func connect(t *testing.T) *store.S3 { return connectWith(t, quick) }

func connectWith(t *testing.T, p store.Patience) *store.S3 {
	t.Helper()
	s, err := store.Connect("s3://"+storetest.Bucket+"/some/place", store.Options{Patience: p, PartBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// both runs a test with each kind of store.
func both(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("s3", func(t *testing.T) {
		storetest.New(t)
		test(t, connect(t))
	})
	t.Run("folder", func(t *testing.T) { test(t, store.Folder{Root: t.TempDir()}) })
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// Claim: what is put is read, at any offset, whether in one part or in several, and listed with its size.
func TestPutReadListDelete(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		ctx := context.Background()
		sizes := []int{0, 1, 1000, 64 << 10, 64<<10 + 1, 200<<10 + 7}
		names := []string{"a/0", "a/1", "a/2", "a/b/3", "a/b/4", "c"}
		for i, n := range sizes {
			o, err := store.PutBytes(ctx, s, names[i], noise(n), store.When{})
			if err != nil || o.Size != int64(n) || o.ETag == "" {
				t.Fatalf("%d bytes: %+v, %v", n, o, err)
			}
			is, at, err := store.ReadAll(ctx, s, names[i], 1<<20)
			if err != nil || !bytes.Equal(is, noise(n)) || at.Size != o.Size || n <= 64<<10 && at.ETag != o.ETag { // the server of the tests has two for parts
				t.Errorf("%d bytes: read %d, %+v for %+v, %v", n, len(is), at, o, err)
			}
		}
		f, err := s.Open(ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 1000)
		if n, err := f.ReadAt(part, 100_000); n != 1000 || err != nil || !bytes.Equal(part, noise(sizes[5])[100_000:101_000]) {
			t.Errorf("a range: %d, %v", n, err)
		}
		if n, err := f.ReadAt(part, int64(sizes[5])-10); n != 10 || err == nil {
			t.Errorf("the end: %d, %v", n, err)
		}
		f.Close()
		list, err := s.List(ctx, "a/")
		if err != nil || len(list) != 5 || list[4].Key != "a/b/4" || list[4].Size != 64<<10+1 {
			t.Errorf("%+v, %v", list, err)
		}
		for range 2 {
			if err := s.Delete(ctx, "c"); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.Open(ctx, "c"); !errors.Is(err, fs.ErrNotExist) || exitcode.CodeOf(err) != exitcode.NoInput {
			t.Error(err)
		}
	})
}

// Claim: conditions hold, and a file that is open when its object is replaced is not read as a mixture.
func TestConditions(t *testing.T) {
	both(t, func(t *testing.T, s store.Store) {
		ctx := context.Background()
		first, err := store.PutBytes(ctx, s, "k", []byte("first"), store.IfAbsent)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.PutBytes(ctx, s, "k", []byte("other"), store.IfAbsent); !errors.Is(err, store.ErrExists) {
			t.Error("if absent:", err)
		}
		f, err := s.Open(ctx, "k")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := store.PutBytes(ctx, s, "k", []byte("second one"), store.IfMatch(first.ETag)); err != nil {
			t.Error("if match:", err)
		}
		if _, err := store.PutBytes(ctx, s, "k", []byte("third"), store.IfMatch(first.ETag)); !errors.Is(err, store.ErrChanged) {
			t.Error("if match of a replaced one:", err)
		}
		p := make([]byte, 5)
		if _, err := f.ReadAt(p, 0); err == nil && string(p) != "first" || err != nil && !errors.Is(err, store.ErrChanged) {
			t.Errorf("%q, %v", p, err)
		}
		if is, _, err := store.ReadAll(ctx, s, "k", 100); string(is) != "second one" || err != nil {
			t.Errorf("%q, %v", is, err)
		}
	})
}

// Claim: uploads that were begun and never completed are aborted, and others' are not touched.
func TestAbort(t *testing.T) {
	server := storetest.New(t)
	s, ctx := connect(t), context.Background()
	stopped, stop := context.WithCancel(ctx)
	server.Fault(func(r *http.Request) storetest.Kind {
		if strings.Contains(r.URL.RawQuery, "partNumber") {
			stop() // as a kill would
		}
		if r.Method == http.MethodDelete {
			return storetest.Refused // nor does it clean up
		}
		return storetest.None
	})
	if _, err := store.PutBytes(stopped, s, "iter/x", noise(300<<10), store.When{}); err == nil {
		t.Fatal("a stopped upload succeeded")
	}
	server.Fault(nil)
	if n, err := s.Abort(ctx, "elsewhere"); n != 0 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.Abort(ctx, "iter"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if n, err := s.Abort(ctx, "iter"); n != 0 || err != nil {
		t.Error(n, err)
	}
}

// Claim: an error names bucket, key, part, attempts, status and what to do, and no secret.
func TestErrorsName(t *testing.T) {
	server := storetest.New(t)
	s, ctx := connect(t), context.Background()
	server.Fault(func(r *http.Request) storetest.Kind {
		if strings.Contains(r.URL.RawQuery, "partNumber=2") {
			return storetest.SlowDown
		}
		return storetest.None
	})
	_, err := store.PutBytes(ctx, s, "x", noise(300<<10), store.When{})
	for _, want := range []string{"s3://tests/some/place/x", "part 2", "attempt 6", "503", "SlowDown", "save less often"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if exitcode.CodeOf(err) != exitcode.IO || strings.Contains(err.Error(), storetest.Secret) {
		t.Error(err)
	}
	server.Fault(func(*http.Request) storetest.Kind { return storetest.Refused })
	if _, err = s.List(ctx, ""); err == nil || !strings.Contains(err.Error(), "no HTTP status") || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL_S3") {
		t.Error(err)
	}
}

// Claim: the error of an upload that stands still names the part and the time limit; that of a clock that is wrong names the clock.
func TestErrorsNameLatenessAndClock(t *testing.T) {
	server := storetest.New(t)
	hurried := quick
	hurried.Deadline, hurried.Attempts = 200*time.Millisecond, 2
	s, ctx := connectWith(t, hurried), context.Background()
	for kind, want := range map[storetest.Kind][]string{
		storetest.Late:   {"s3://tests/some/place/x", "part 2", "the request did not end within 200ms", "attempt 2"},
		storetest.Skewed: {"s3://tests/some/place/x", "part 2", "RequestTimeTooSkewed", "attempt 1", "403", "this host's clock"},
	} {
		server.Fault(func(r *http.Request) storetest.Kind {
			if strings.Contains(r.URL.RawQuery, "partNumber=2") {
				return kind
			}
			return storetest.None
		})
		_, err := store.PutBytes(ctx, s, "x", noise(150<<10), store.When{})
		for _, text := range want {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%q is not in: %v", text, err)
			}
		}
	}
}

// Claim: what is not an address in a bucket is refused, without repeating a password.
func TestAddresses(t *testing.T) {
	for name, want := range map[string]store.Address{
		"s3://bucket":          {Bucket: "bucket"},
		"s3://bucket/":         {Bucket: "bucket"},
		"s3://bucket/a/b.c/":   {Bucket: "bucket", Prefix: "a/b.c"},
		"s3://my-data.x/run 1": {Bucket: "my-data.x", Prefix: "run 1"},
	} {
		if is, err := store.Parse(name); is != want || err != nil {
			t.Errorf("%s: %+v, %v", name, is, err)
		}
	}
	for _, name := range []string{"", "bucket/a", "s3://", "s3:///a", "s3://b/../c", "s3://b//c", "s3://b/./c", "s3://user:geheim@b/c", "s3://b:9000/c"} {
		if _, err := store.Parse(name); exitcode.CodeOf(err) != exitcode.Usage || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://user:geheim@host")
	if _, err := store.Connect("s3://bucket/a", store.Options{}); exitcode.CodeOf(err) != exitcode.Usage || strings.Contains(err.Error(), "geheim") {
		t.Error(err)
	}
}
