package store

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
)

const scheme = "s3://"

// IsURL distinguishes s3:// URLs from paths.
func IsURL(name string) bool { return strings.HasPrefix(name, scheme) }

// Address is a key or prefix in a bucket.
type Address struct{ Bucket, Prefix string } // the prefix has no slash at either end; "" is the complete bucket

func (a Address) String() string { return strings.TrimSuffix(scheme+a.Bucket+"/"+a.Prefix, "/") }

// Parse reads s3://bucket/prefix. Errors are exitcode.Usage.
func Parse(name string) (Address, error) {
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(name, scheme), "/")
	prefix = strings.TrimRight(prefix, "/")
	switch {
	case !IsURL(name) || bucket == "" || strings.ContainsAny(bucket, "@:?#%\\ ") || strings.Trim(bucket, ".") == "":
		return Address{}, exitcode.Errorf(exitcode.Usage, "%s is not an address in a bucket; write s3://bucket/prefix (the endpoint and the credentials are read from the environment)", redacted(name))
	case prefix != "" && (path.Clean("/"+prefix) != "/"+prefix || strings.ContainsAny(prefix, "\\\x00")):
		return Address{}, exitcode.Errorf(exitcode.Usage, "%s: the prefix has an empty part, a backslash, . or ..; write a prefix without these", name)
	}
	return Address{bucket, prefix}, nil
}

// redacted is a URL without what stands before an @: it may be a password.
func redacted(name string) string {
	if i := strings.LastIndex(name, "@"); i >= 0 {
		return scheme + "..." + name[i:]
	}
	return name
}

// endpoint is the host of the store and whether it is reached by TLS, from the environment.
func endpoint() (host string, secure bool, err error) {
	given := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	if given == "" {
		return "s3.amazonaws.com", true, nil
	}
	u, err := url.Parse(given)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "":
		return "", false, exitcode.Errorf(exitcode.Usage, "AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) is not the address of a server; write it as https://host:port")
	case u.User != nil:
		return "", false, exitcode.Errorf(exitcode.Usage, "AWS_ENDPOINT_URL_S3 (or AWS_ENDPOINT_URL) contains a user or a password; give credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in a file")
	}
	return u.Host, u.Scheme == "https", nil
}

// CacheFolder is a folder of this host for what is fetched from the current endpoint: equal
// names of buckets at different endpoints do not meet there. It is not made.
func CacheFolder(kind string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", errors.New("neither XDG_CACHE_HOME nor HOME is set, so there is no folder to which objects can be downloaded; set one of them")
	}
	given := cmp.Or(os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"))
	return filepath.Join(cache, "monotron", fmt.Sprintf("%s-%08x", kind, uint32(xxh3.HashString(given)))), nil
}

// region is where requests are signed for; "" asks Amazon.
func region(host string) string {
	r := cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if r == "" && host != "s3.amazonaws.com" {
		r = "us-east-1" // what other servers take when none is set
	}
	return r
}
