// Package native saves and loads monotron's own checkpoints: state and
// tensors of a run, written by any layout of ranks and read by any other
// (docs/checkpoints.md).
//
//	<save>/latest_checkpointed_iteration.txt   "50"
//	<save>/iter_0000050/manifest.json          what there is, with checksums
//	<save>/iter_0000050/rank_00000.safetensors pieces of global tensors
//
// Invariants:
//
//   - A folder has its final name only when it is complete and on disk. It is
//     written as .tmp-iter_..., synced and renamed; replacing one swaps the two
//     names. Whatever step a save dies at, the previous checkpoint or the new
//     one is complete.
//
//   - Every byte is under a checksum: the manifest under its own, each file's
//     header and each piece under one in the manifest. A number that was read is
//     the number that was written.
//
//   - What is read is not trusted until it is checked: names stay in the folder,
//     boxes in their tensors, byte ranges in their files, and pieces cover tensors
//     and files without gaps or overlaps.
//
//   - A save holds one chunk in memory, not a second copy of the model; an
//     asynchronous one holds its rank's snapshot.
//
//   - A save by several ranks is agreed on: where one cannot do its part, every
//     rank's Save is an error and nothing is left.
//
// Other programs' formats are the packages next to this one: hf, megatron, gguf,
// nanogpt, llmc. Each has a checkpoint.Source and a checkpoint.Writer, as this one
// has in source.go and write.go.
//
// Reading order: state.go, manifest.go (what is written), manifesttext.go (its text), check.go (what a
// manifest must satisfy), disk.go (every change of the disk), storage.go (names in a save
// folder), save.go, async.go, folder.go, load.go
// (choice and fallback), restore.go (pieces to pieces), source.go, fromsource.go (a checkpoint
// of any format into a run), write.go, hash.go and sums.go. inject.go makes its disk fail.
package native
