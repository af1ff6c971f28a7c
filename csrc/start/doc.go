// Package start checks, before Go's runtime starts, what the process's limits
// (ulimit -v, ulimit -u) leave it: too little is one line and exit code 70 instead of the
// runtime's own crash. It has nothing to call; main imports it. Without cgo there is no
// such check.
package start
