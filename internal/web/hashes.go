package web

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// Hashes are sources of a content security policy that let a browser run these texts, as
// elements of a page, and no others.
func Hashes(texts []string) string {
	var list []string
	for _, text := range texts {
		sum := sha256.Sum256([]byte(text))
		list = append(list, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return strings.Join(list, " ")
}
