package store

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"monotron/internal/exitcode"
)

// Options change how a bucket is reached. The zero value is the usual.
type Options struct {
	Patience  Patience          // zero: the usual
	PartBytes int64             // least size of a part; larger objects go in several. 0: 64 MiB
	Transport http.RoundTripper // nil: the usual
}

// shared are the connections of all stores of this process, without and with TLS.
var shared = map[bool]func() (http.RoundTripper, error){
	false: sync.OnceValues(func() (http.RoundTripper, error) { return minio.DefaultTransport(false) }),
	true:  sync.OnceValues(func() (http.RoundTripper, error) { return minio.DefaultTransport(true) }),
}

// S3 is a Store in a bucket.
type S3 struct {
	at       Address
	api      minio.Core
	patience Patience
	part     int64
}

// Connect makes the Store of an s3:// URL. The endpoint is AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL, else Amazon's; the region AWS_REGION; credentials come from the
// environment, ~/.aws/credentials or the host's role, when they are first needed. Nothing
// is sent. Errors are exitcode.Usage.
func Connect(name string, o Options) (*S3, error) {
	at, err := Parse(name)
	if err != nil {
		return nil, err
	}
	host, secure, err := endpoint()
	if err != nil {
		return nil, err
	}
	if o.Transport == nil {
		if o.Transport, err = shared[secure](); err != nil {
			return nil, exitcode.Errorf(exitcode.IO, "store: %w", err)
		}
	}
	role := &credentials.IAM{Client: &http.Client{Timeout: 5 * time.Second}} // most hosts have none to ask
	api, err := minio.NewCore(host, &minio.Options{
		Creds:  credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, role}),
		Secure: secure, Region: region(host), Transport: o.Transport, MaxRetries: 1,
	})
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "store: %s: %w; check the URL and AWS_ENDPOINT_URL_S3", at, err)
	}
	if o.Patience == (Patience{}) {
		o.Patience = usual
	}
	if o.PartBytes == 0 {
		o.PartBytes = 64 << 20
	}
	return &S3{at, *api, o.Patience, o.PartBytes}, nil
}

// Name is the address of an object.
func (s *S3) Name(key string) string { return scheme + s.at.Bucket + "/" + s.key(key) }

// key is the name in the bucket.
func (s *S3) key(key string) string {
	if s.at.Prefix == "" {
		return key
	}
	return s.at.Prefix + "/" + key
}

func (s *S3) request(op, key string) request { return request{op: op, name: s.Name(key)} }

// Open asks for size and ETag.
func (s *S3) Open(ctx context.Context, key string) (*File, error) {
	f := &File{Object: Object{Key: key}, name: s.Name(key)}
	err := s.patience.try(ctx, s.request("open", key), func(ctx context.Context) error {
		is, err := s.api.StatObject(ctx, s.at.Bucket, s.key(key), minio.StatObjectOptions{})
		f.Size, f.ETag = is.Size, is.ETag
		if err == nil && (is.Size < 0 || is.ETag == "") {
			err = errBadAnswer
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	f.read = func(p []byte, off int64) error { return s.readAt(ctx, f.Object, p, off) }
	return f, nil
}

// readAt fills p from the object of that ETag.
func (s *S3) readAt(ctx context.Context, o Object, p []byte, off int64) error {
	r := s.request("read", o.Key)
	r.bytes = int64(len(p))
	return s.patience.try(ctx, r, func(ctx context.Context) error {
		var how minio.GetObjectOptions
		if err := errors.Join(how.SetRange(off, off+int64(len(p))-1), how.SetMatchETag(o.ETag)); err != nil {
			return err
		}
		body, is, header, err := s.api.GetObject(ctx, s.at.Bucket, s.key(o.Key), how)
		if err != nil {
			return err
		}
		defer body.Close()
		if is.ETag != o.ETag {
			return ErrChanged
		}
		want := fmt.Sprintf("bytes %d-%d/%d", off, off+int64(len(p))-1, o.Size)
		if got := header.Get("Content-Range"); got != want {
			return fmt.Errorf("%w: the answer has the range %q, but %q was requested", errBadAnswer, got, want)
		}
		_, err = io.ReadFull(body, p)
		return err
	})
}

// Put sends the object, a large one in parts. A condition is for one that fits a part.
func (s *S3) Put(ctx context.Context, key string, from io.ReaderAt, size int64, when When) (Object, error) {
	if size > s.part && when == (When{}) {
		return s.putParts(ctx, key, from, size)
	}
	// The checksum that the server verifies, and the condition on what is there already.
	sum, err := md5Of(io.NewSectionReader(from, 0, size))
	if err != nil {
		return Object{}, exitcode.With(exitcode.IO, err)
	}
	how := minio.PutObjectOptions{DisableContentSha256: true}
	switch {
	case when.absent:
		how.SetMatchETagExcept("*")
	case when.etag != "":
		how.SetMatchETag(when.etag)
	}
	// With retries: an attempt whose answer was lost may have been done.
	o, attempts := Object{Key: key, Size: size}, 0
	r := s.request("put", key)
	r.bytes = size
	err = s.patience.try(ctx, r, func(ctx context.Context) error {
		attempts++
		done, err := s.api.PutObject(ctx, s.at.Bucket, s.key(key), section(from, 0, size), size, sum, "", how)
		o.ETag = done.ETag
		return err
	})
	if errors.Is(err, ErrChanged) && when != (When{}) {
		if attempts > 1 { // an earlier attempt may have been done, and its answer lost
			if is, same := s.holds(ctx, key, from, size); same {
				return is, nil
			}
		}
		if when.absent {
			var e *Error
			if errors.As(err, &e) {
				e.Why = ErrExists
			}
		}
	}
	return o, err
}

// holds reports whether the object has just this content.
func (s *S3) holds(ctx context.Context, key string, from io.ReaderAt, size int64) (Object, bool) {
	f, err := s.Open(ctx, key)
	if err != nil || f.Size != size {
		return Object{}, false
	}
	is, err := io.ReadAll(io.NewSectionReader(f, 0, size))
	if err != nil {
		return Object{}, false
	}
	want := make([]byte, size)
	_, err = from.ReadAt(want, 0)
	return f.Object, (err == nil || err == io.EOF) && bytes.Equal(is, want)
}

// List asks for pages of a thousand names.
func (s *S3) List(ctx context.Context, prefix string) ([]Object, error) {
	var all []Object
	token := ""
	for {
		var page minio.ListBucketV2Result
		err := s.patience.try(ctx, s.request("list", prefix), func(ctx context.Context) (err error) {
			// the library's call of a page takes no context: the deadline ends it from here
			page, err = within(ctx, func() (minio.ListBucketV2Result, error) {
				return s.api.ListObjectsV2(s.at.Bucket, s.key(prefix), "", token, "", 0)
			})
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, o := range page.Contents {
			key := o.Key
			if s.at.Prefix != "" {
				var ok bool
				if key, ok = strings.CutPrefix(o.Key, s.at.Prefix+"/"); !ok {
					continue // a server that lists what it was not asked for
				}
			}
			all = append(all, Object{key, o.Size, strings.Trim(o.ETag, `"`)})
		}
		if token = page.NextContinuationToken; !page.IsTruncated || token == "" {
			return all, nil
		}
	}
}

// within is what call returns, or ctx's error where that comes first.
func within[T any](ctx context.Context, call func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Delete removes the object.
func (s *S3) Delete(ctx context.Context, key string) error {
	err := s.patience.try(ctx, s.request("delete", key), func(ctx context.Context) error {
		return s.api.RemoveObject(ctx, s.at.Bucket, s.key(key), minio.RemoveObjectOptions{})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// md5Of is the sum by which a server checks what has arrived.
func md5Of(r io.Reader) (string, error) {
	h := md5.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(h.Sum(nil)), nil
}

// section reads a stretch of from; its errors are known as ours.
func section(from io.ReaderAt, at, n int64) io.Reader {
	return &source{io.NewSectionReader(from, at, n)}
}

type source struct{ r io.Reader }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		err = &sourceError{err}
	}
	return n, err
}
