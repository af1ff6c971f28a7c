package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"monotron/internal/exitcode"
)

// Patience says how often and how long a request is tried.
type Patience struct {
	Attempts int           // in all
	Wait     time.Duration // before the second attempt, at most; it doubles with each
	MaxWait  time.Duration
	Deadline time.Duration // of an attempt, in addition to the time of its bytes
	Floor    int64         // bytes a second below which a transfer counts as stopped
}

// usual: six attempts in half a minute of waits at most.
var usual = Patience{Attempts: 6, Wait: 400 * time.Millisecond, MaxWait: 10 * time.Second, Deadline: 30 * time.Second, Floor: 1 << 20}

// Error is a request that failed for good.
type Error struct {
	Op       string // put, read, ...
	Name     string // s3://bucket/key
	Part     int    // of an object in parts; 0: none
	Attempts int
	Status   int // of the last answer; 0: there was none
	Why      error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: cannot %s %s", e.Op, e.Name)
	if e.Part > 0 {
		fmt.Fprintf(&b, ", part %d", e.Part)
	}
	fmt.Fprintf(&b, ": %v (attempt %d, ", e.Why, e.Attempts)
	if e.Status > 0 {
		fmt.Fprintf(&b, "HTTP status %d)", e.Status)
	} else {
		b.WriteString("no HTTP status)")
	}
	if advice := e.advice(); advice != "" {
		b.WriteString("; " + advice)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Why }

func (e *Error) advice() string {
	switch {
	case errors.Is(e.Why, ErrChanged), errors.Is(e.Why, ErrExists):
		return "" // the caller knows what it means
	case e.Status == http.StatusForbidden || e.Status == http.StatusUnauthorized:
		return "check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, ~/.aws/credentials with AWS_PROFILE, or the host's role), the bucket's policy and this host's clock"
	case e.Status == http.StatusNotFound:
		return "check the bucket, the prefix and AWS_ENDPOINT_URL_S3"
	case e.Status == http.StatusMovedPermanently || e.Status == http.StatusBadRequest:
		return "check AWS_REGION and AWS_ENDPOINT_URL_S3"
	case e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests:
		return "the store limits the rate of requests: save less often, or try again later"
	case e.Status == 0:
		return "check the network and AWS_ENDPOINT_URL_S3, then try again"
	}
	return "try again later, or ask the operator of the store"
}

// The library waits after a failed request even where it is not to repeat it; try waits itself.
func init() { minio.DefaultRetryUnit = time.Microsecond }

// request is what an attempt is for.
type request struct {
	op, name string
	part     int
	bytes    int64 // that travel
}

// errBadAnswer is in the chain where the answer itself is damaged: it is asked for again.
var errBadAnswer = errors.New("the answer is damaged")

// try makes attempts until one succeeds, fails for good, or there were enough.
func (p Patience) try(ctx context.Context, r request, once func(ctx context.Context) error) error {
	wait := p.Wait
	for n := 1; ; n++ {
		limit, cancel := context.WithTimeout(ctx, p.Deadline+time.Duration(r.bytes/p.Floor)*time.Second)
		err := once(limit)
		late := limit.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("store: %s %s was stopped: %w", r.op, r.name, context.Cause(ctx))
		}
		status, why, again := judge(err)
		if late {
			why, again = fmt.Errorf("the request did not end within %v", p.Deadline+time.Duration(r.bytes/p.Floor)*time.Second), true
		}
		if !again || n >= p.Attempts {
			return coded(&Error{r.op, r.name, r.part, n, status, why})
		}
		select {
		case <-time.After(wait/4 + rand.N(max(1, wait*3/4))):
		case <-ctx.Done():
		}
		wait = min(2*wait, p.MaxWait)
	}
}

func coded(e *Error) error {
	if errors.Is(e.Why, fs.ErrNotExist) {
		return exitcode.With(exitcode.NoInput, e)
	}
	return exitcode.With(exitcode.IO, e)
}

// judge says what the last answer was and whether another attempt may help.
func judge(err error) (status int, why error, again bool) {
	var answer minio.ErrorResponse
	if !errors.As(err, &answer) {
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err // its URL says nothing that the name does not
		}
		permanent := errors.Is(err, ErrChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || isOurs(err)
		return 0, err, !permanent
	}
	status = answer.StatusCode
	text := strings.TrimSpace(answer.Code + ": " + answer.Message)
	switch {
	case status == http.StatusPreconditionFailed || answer.Code == minio.PreconditionFailed:
		return http.StatusPreconditionFailed, ErrChanged, false
	case answer.Code == minio.NoSuchUpload:
		return status, errNoUpload, false
	case answer.Code == minio.NoSuchBucket:
		return status, errors.New("there is no such bucket"), false
	case status == http.StatusNotFound || answer.Code == minio.NoSuchKey:
		return http.StatusNotFound, fs.ErrNotExist, false
	case status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status == http.StatusConflict || status == 499 || status < 400:
		return status, errors.New(text), true
	}
	switch answer.Code { // with a status of a wrong request, but of the way there
	case "BadDigest", "IncompleteBody", "RequestTimeout", "InternalError", "SlowDown", "ExpiredToken":
		return status, errors.New(text), true
	}
	return status, errors.New(text), false
}

// isOurs recognizes an error of reading what is to be sent.
func isOurs(err error) bool {
	var source *sourceError
	return errors.As(err, &source)
}

// sourceError is an error of the reader that Put was given.
type sourceError struct{ err error }

func (s *sourceError) Error() string { return s.err.Error() }
func (s *sourceError) Unwrap() error { return s.err }
