package dataset

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/store"
)

// located is the path of a prefix on this host: from dir where it is relative, and of an
// s3:// URL in the folder objects, under the names of bucket and key.
func located(dir, objects, prefix string) string {
	if !store.IsURL(prefix) {
		return inDir(dir, prefix)
	}
	return filepath.Join(inDir(dir, objects), filepath.FromSlash(strings.TrimPrefix(prefix, "s3://")))
}

// Remote reports whether some prefix of the flags is an s3:// URL: then opening the data may take
// as long as fetching it.
func (c *Config) Remote() bool {
	files := func(g Groups) bool { return g.File != "" }
	return c.DataArgsPath != "" || c.PerSplitDataArgsPath != "" || slices.ContainsFunc(c.Groups[:], files) ||
		slices.ContainsFunc(c.Prefixes(), store.IsURL)
}

// fetchPrefix brings the files of a prefix in an S3 bucket to this host, once for all its processes.
func (m *maker) fetchPrefix(prefix string) error {
	at, err := store.Parse(prefix)
	if err != nil {
		return err
	}
	// bucket/folder and the common part of the objects' names.
	folder, name := "s3://"+at.Bucket, at.Prefix
	if i := strings.LastIndex(name, "/"); i >= 0 {
		folder, name = folder+"/"+name[:i], name[i+1:]
	}
	switch {
	case name == "":
		return exitcode.Errorf(exitcode.Usage, "%s names only a bucket; give the prefix of .bin and .idx objects, as in s3://bucket/corpus_text_document", prefix)
	case m.ObjectPath == "":
		return exitcode.Errorf(exitcode.Usage, "%s: neither XDG_CACHE_HOME nor HOME is set, so there is no folder to which objects can be downloaded; give --object-storage-cache-path", prefix)
	}
	from, err := store.Connect(folder, store.Options{})
	if err != nil {
		return err
	}
	// One process fetches; others on this host wait for its lease to end, then find the files.
	local := located(m.Dir, m.ObjectPath, prefix)
	if err := os.MkdirAll(filepath.Dir(local), 0o777); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	lease := atomicfile.NewLease(local+".fetching", func() bool { return false }, m.cache.wait)
	defer lease.End()
	// A pair of .idx and .bin, or a file of tokens alone; a sidecar may be missing.
	ends := []string{".idx", ".bin"}
	if IsTokenFile(prefix) {
		ends = []string{""}
		pair := strings.TrimSuffix(name, ".bin")
		if f, err := from.Open(context.Background(), pair+".idx"); err == nil {
			return errors.Join(halfOfPair(strings.TrimSuffix(prefix, ".bin")), f.Close())
		}
	}
	for _, end := range ends {
		if err := m.fetchObject(from, name+end, local+end); err != nil {
			return err
		}
	}
	if err := m.fetchObject(from, name+".json", local+".json"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil // a pair without sidecar is fine
}

// fetchObject has path be the object's content. Next to it, path.etag says which content it is:
// the object's next one is an error, for nobody has asked for other data.
func (m *maker) fetchObject(from store.Store, key, path string) error {
	ctx, record := context.Background(), path+".etag"
	f, err := from.Open(ctx, key)
	if err != nil {
		return err
	}
	defer f.Close()
	is := fmt.Sprintf("%s %d\n", f.ETag, f.Size)
	if st, err := os.Stat(path); err == nil && st.Size() == f.Size {
		if was, err := exitcode.ReadFile(record, 1<<10); err == nil && string(was) == is {
			return nil
		}
	}
	if was, err := exitcode.ReadFile(record, 1<<10); err == nil && string(was) != is {
		return exitcode.Errorf(exitcode.BadData, "%s was replaced after it was downloaded to %s (ETag and size were %q and are now %q); remove that file and %s to train on the new content",
			f.Name(), path, strings.TrimSpace(string(was)), strings.TrimSpace(is), filepath.Base(record))
	}
	tmp := atomicfile.Temporary(path)
	defer os.Remove(tmp) // it is gone where it has its name
	got, err := store.Fetch(ctx, from, key, tmp)
	if err != nil {
		return err
	}
	if got != f.Object {
		return exitcode.Errorf(exitcode.IO, "%s was replaced while it was being downloaded; run the command again", f.Name())
	}
	if err := atomicfile.Publish(tmp, path); err != nil {
		return err
	}
	m.cache.say(fmt.Sprintf("downloaded %s to %s (%d bytes)", f.Name(), path, f.Size))
	return atomicfile.WriteFile(record, 0o666, []byte(is))
}
