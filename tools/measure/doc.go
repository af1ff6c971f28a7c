// Package measure is the command measure: it times this machine and writes what plan run and plan search read
// as a machine file.
//
// Reading order: measure.go (the command, its tasks and their order), ops.go (every op of training steps at every shape),
// links.go (collectives, processes, the disk), cores.go (which visits count where cores were far apart).
package measure
