// Package memory keeps checkpoints in the memory of hosts, for a run that continues after ranks
// or a host are lost (docs/failures.md).
//
// Every rank has four segments (segment.go): memory that the process which started it holds, and
// that outlives it. Two are for its own shard, two for a copy of that of the rank J before it. A
// shard is the local buffers of all tensors as they are, and the run's state.
//
// Invariants:
//
//   - A segment counts only while its header does: the header is taken away before anything else
//     changes and written after everything else. It has a checksum of the data after it.
//
//   - A checkpoint counts only when every rank's shard is in its own segment or in the copy
//     (find.go). All ranks find that out together, so they come to the same.
//
//   - A save writes the segments of the older checkpoint. The newer one is complete until the
//     save is.
//
//   - Only the layout that has saved can load: shards are never cut again.
//
// Reading order: segment.go, shard.go (tensors to bytes and back), store.go (saving), find.go
// (which checkpoint is complete, and bringing its shards to who lost them), travel.go.
package memory
