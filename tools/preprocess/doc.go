// Package preprocess is the command preprocess_data: JSON lines (plain text, or
// token files of other programs) to token files. The output depends on the input
// and the flags only, never on the number of workers or on how often the run was
// interrupted, and appears under its name when it is complete.
//
// preprocess.go has the flags, options.go checks them, pipeline.go moves blocks
// of lines from the reader through the workers to the writer, writer.go has the
// output files, journal.go what --resume needs, progress.go the progress line;
// text.go is plain text, convert.go token files, dryrun.go --dry-run, search.go
// --find-optimal-num-workers.
package preprocess
