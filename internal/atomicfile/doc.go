// Package atomicfile puts files and folders in place complete or not at all: each is made under
// a temporary name next to its own, brought to disk, renamed, and the rename brought to
// disk too. What is there and no plain file, such as a device, is not replaced.
//
// file.go has files, folder.go folders and the renames of both; a test of tests/ finds
// renames in other packages. lock_unix.go keeps a file or folder from other processes; lease.go has one
// process of several make files that all need.
package atomicfile
