// Package remote keeps native checkpoints in a store of objects, and in a local folder in
// which they are made and to which they are fetched (docs/object-storage.md).
//
//	<prefix>/latest_checkpointed_iteration.txt      "50"
//	<prefix>/iter_0000050/rank_00000.safetensors    as in a save folder
//	<prefix>/iter_0000050/manifest.json             written last, only where there is none
//	<prefix>/iter_0000050.2/...                     the iteration saved again with another content
//
// Invariants:
//
//   - A version, which is a folder iter_N or iter_N.K, is a checkpoint once it has a
//     manifest. Its other objects are complete and of the sizes written before that, and
//     none of them changes after. Of an iteration the version of the highest K counts.
//
//   - The tracker is written after the manifest was read back, on the condition that it is
//     what this run has left. Only then is anything older removed, manifests first.
//
//   - So whatever request a run dies at, the checkpoint before or the new one is what is
//     fetched, and it is complete.
//
//   - A fetched checkpoint gets its name in the local folder after every byte was checked
//     against the manifest's sums.
//
// Reading order: remote.go (versions and the tracker), save.go, prune.go, fetch.go,
// local.go (which folder of this host).
package remote
