// Package doctor is the command `monotron doctor`: what is here, what is
// missing, what works all the same and what the lack costs.
//
// Reading order: doctor.go (the report), then what it checks: host.go, libraries.go (with
// cgo.go and nocgo.go), speed.go (devices), gpu.go, hosts.go (several hosts).
package doctor
