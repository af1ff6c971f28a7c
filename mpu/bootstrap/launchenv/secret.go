package launchenv

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// NewSecret makes a secret for one run.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	return hex.EncodeToString(b[:])
}

// userSecret is the user's own, made by whichever process comes first. Where hosts
// share home folders they share it.
func userSecret(cache string) ([]byte, error) {
	folder := filepath.Join(cache, "monotron")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "secret")
	if err := atomicfile.WriteNew(path, 0o600, []byte(NewSecret())); err != nil {
		return nil, err
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s is readable by other users; remove it, or run chmod 600 %s", path, path)
	}
	text, err := exitcode.ReadFile(path, 1<<10)
	if err != nil {
		return nil, err
	}
	if len(text) < 64 {
		return nil, fmt.Errorf("%s is damaged; remove this file", path)
	}
	return text, nil
}
