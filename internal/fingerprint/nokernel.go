//go:build !cgo || !amd64

package fingerprint

func add(s *Sum, data []byte, size int, at uint32, keys [2]uint32) { addGo(s, data, size, at, keys) }
