// Package start looks, before Go's runtime starts, at what the process's limits
// (ulimit -v, ulimit -u) leave it: too little is one line and exit code 70 instead of the
// runtime's own crash. It has nothing to call; main imports it. Without cgo there is no
// such look.
package start
