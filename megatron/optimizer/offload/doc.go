// Package offload keeps what a rank has no memory for: in files, or in the host's memory
// next to a GPU. Each is a device.Store.
//
// A rank's files lie in one folder and are its alone while it lives. They are scratch: what
// a run continues from is a checkpoint, never they. A clean end takes them away; those of a run that was
// killed are taken away by the next one in the folder.
//
// Reading order: folder.go (whose files, and since when), file.go (bytes, past the page cache),
// host.go.
package offload
