package golden

import (
	"archive/tar"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// unpacked is the folder with the cases that travel with the repository, unpacked once into
// .tools under a name that is the hash of the archives. Several test processes may call it
// at once: each unpacks into a folder of its own, and the first to finish names it.
func unpacked() (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	archives, err := filepath.Glob(filepath.Join(root, "internal/golden/testdata/*.tar.zst"))
	if err != nil || len(archives) == 0 {
		return "", fmt.Errorf("%s/internal/golden/testdata has no archives of reference cases (*.tar.zst)", root)
	}
	sum := sha256.New()
	for _, path := range archives {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	tools := filepath.Join(root, ".tools")
	dir := filepath.Join(tools, fmt.Sprintf("golden-%x", sum.Sum(nil)[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(tools, 0o777); err != nil {
		return "", err
	}
	partial, err := os.MkdirTemp(tools, "golden-unpacking-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	for _, path := range archives {
		if err := unpack(path, partial); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := os.Chmod(partial, 0o755); err != nil {
		return "", err
	}
	err = os.Rename(partial, dir)
	if _, there := os.Stat(dir); there == nil {
		return dir, nil // another process was faster
	}
	return dir, err
}

// repository is the folder with go.mod, this one or one above.
func repository() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("neither this folder nor its parents have a go.mod")
		}
		at = filepath.Dir(at)
	}
}

// unpack writes the files of an archive under dir.
func unpack(path, dir string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	plain, err := zstd.NewReader(file)
	if err != nil {
		return err
	}
	defer plain.Close()
	// Names that lead out of the folder are refused, though the archive is our own.
	for files := tar.NewReader(plain); ; {
		head, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		name := filepath.Clean(head.Name)
		if !filepath.IsLocal(name) {
			return fmt.Errorf("the archive's entry %q leads out of the folder", head.Name)
		}
		if err := unpackOne(files, head, filepath.Join(dir, name)); err != nil {
			return err
		}
	}
}

func unpackOne(from io.Reader, head *tar.Header, to string) error {
	switch head.Typeflag {
	case tar.TypeDir:
		return os.MkdirAll(to, 0o755)
	case tar.TypeSymlink: // within a case
		if strings.Contains(head.Linkname, "..") || filepath.IsAbs(head.Linkname) {
			return fmt.Errorf("the archive's link %q leads out of its folder", head.Name)
		}
		return os.Symlink(head.Linkname, to)
	case tar.TypeReg:
	default:
		return fmt.Errorf("%q has type %q", head.Name, head.Typeflag)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fs.FileMode(head.Mode)&0o777|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Close())
}
