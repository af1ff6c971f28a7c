// Package parallelio moves large files at the speed of the disk: while the caller makes
// the next bytes, the last ones are on their way, past the page cache where the
// file system lets them (O_DIRECT), else with an early start of their write-out.
// Nothing of it shows in the file.
//
// Reading order: write.go (a file), buffer.go (its memory), direct_linux.go (past the page
// cache).
package parallelio
