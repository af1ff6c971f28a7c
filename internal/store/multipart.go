package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"monotron/internal/exitcode"
)

const (
	mostParts   = 9000 // of 10,000 that a store takes
	sentAtOnce  = 4
	uploadTries = 3 // of a complete object, where its upload is lost
)

// errNoUpload is an upload that the store no longer has: aborted by another, or complete
// by an attempt whose answer was lost.
var errNoUpload = errors.New("the upload no longer exists")

// putParts sends an object in parts. Where the store has lost the upload, all of it is
// sent again: whether the object is complete then, nothing shows.
func (s *S3) putParts(ctx context.Context, key string, from io.ReaderAt, size int64) (o Object, err error) {
	for range uploadTries {
		if o, err = s.upload(ctx, key, from, size); !errors.Is(err, errNoUpload) {
			break
		}
	}
	return o, err
}

// partSize is that of an object's parts: a multiple of 1 MiB where there would be too many.
func (s *S3) partSize(size int64) int64 {
	const unit = 1 << 20
	if size <= mostParts*s.part {
		return s.part
	}
	return (size/mostParts + unit) / unit * unit
}

func (s *S3) upload(ctx context.Context, key string, from io.ReaderAt, size int64) (Object, error) {
	var id string
	err := s.patience.try(ctx, s.request("begin the upload of", key), func(ctx context.Context) (err error) {
		id, err = s.api.NewMultipartUpload(ctx, s.at.Bucket, s.key(key), minio.PutObjectOptions{})
		return err
	})
	if err != nil {
		return Object{}, err
	}
	parts, err := s.sendParts(ctx, key, id, from, size)
	o := Object{Key: key, Size: size}
	if err == nil {
		err = s.patience.try(ctx, s.request("complete the upload of", key), func(ctx context.Context) error {
			done, err := s.api.CompleteMultipartUpload(ctx, s.at.Bucket, s.key(key), id, parts, minio.PutObjectOptions{})
			o.ETag = done.ETag
			return err
		})
	}
	if err != nil {
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = s.api.AbortMultipartUpload(late, s.at.Bucket, s.key(key), id) // the next run's Abort tries again
		return Object{}, err
	}
	return o, nil
}

// sendParts sends all parts, some at a time, and each again where it fails.
func (s *S3) sendParts(ctx context.Context, key, id string, from io.ReaderAt, size int64) ([]minio.CompletePart, error) {
	part := s.partSize(size)
	parts := make([]minio.CompletePart, (size+part-1)/part)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sentAtOnce)
	for i := range parts {
		group.Go(func() error {
			at := int64(i) * part
			n := min(part, size-at)
			sum, err := md5Of(io.NewSectionReader(from, at, n))
			if err != nil {
				return exitcode.With(exitcode.IO, err)
			}
			r := request{op: "put", name: s.Name(key), part: i + 1, bytes: n}
			return s.patience.try(ctx, r, func(ctx context.Context) error {
				done, err := s.api.PutObjectPart(ctx, s.at.Bucket, s.key(key), id, i+1, section(from, at, n), n,
					minio.PutObjectPartOptions{Md5Base64: sum, DisableContentSha256: true})
				parts[i] = minio.CompletePart{PartNumber: i + 1, ETag: done.ETag}
				return err
			})
		})
	}
	return parts, group.Wait()
}

// Abort ends uploads that a killed process has left under prefix.
func (s *S3) Abort(ctx context.Context, prefix string) (n int, err error) {
	key, id := "", ""
	for {
		var page minio.ListMultipartUploadsResult
		err := s.patience.try(ctx, s.request("list the uploads of", prefix), func(ctx context.Context) (err error) {
			page, err = s.api.ListMultipartUploads(ctx, s.at.Bucket, s.key(prefix), key, id, "", 1000)
			return err
		})
		if errors.Is(err, errNoUpload) { // some servers' word for none
			return n, nil
		}
		if err != nil {
			return n, err
		}
		for _, u := range page.Uploads {
			r := request{op: "abort the upload of", name: scheme + s.at.Bucket + "/" + u.Key}
			err := s.patience.try(ctx, r, func(ctx context.Context) error {
				return s.api.AbortMultipartUpload(ctx, s.at.Bucket, u.Key, u.UploadID)
			})
			if err != nil && !errors.Is(err, errNoUpload) {
				return n, err
			}
			n++
		}
		if key, id = page.NextKeyMarker, page.NextUploadIDMarker; !page.IsTruncated || key == "" {
			return n, nil
		}
	}
}
