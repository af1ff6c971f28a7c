package web

import "testing"

// TestHashes: the sum of a text is that of FIPS 180-2's example.
func TestHashes(t *testing.T) {
	if got, want := Hashes([]string{"abc", "abc"}), "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=' 'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
