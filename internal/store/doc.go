// Package store keeps objects, which are bytes under a key that are written complete: in an
// S3 bucket (s3.go) or in a local folder (folder.go). It knows neither checkpoints nor
// datasets.
//
// What a caller may rely on:
//
//   - An object appears complete or not at all, and is never changed in place: a new
//     content has a new ETag.
//
//   - Put can be made to depend on what is there (IfAbsent, IfMatch), so that of two
//     writers one learns of the other.
//
//   - A File reads one content: where the object is replaced meanwhile, reading ends with
//     ErrChanged.
//
//   - A request has a deadline and is repeated a bounded number of times, with growing and
//     random waits. An Error then names the object, the part, the attempts, the last HTTP
//     status and what to do. Credentials are in no error.
//
// Reading order: store.go (the interface), address.go (s3:// URLs and the environment),
// s3.go, multipart.go (objects in parts), retry.go (attempts, errors), folder.go,
// copy.go (objects from and to files).
package store
