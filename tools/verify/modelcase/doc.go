// Package modelcase runs a folder of golden/model: it builds what the folder's
// case.json describes, computes what the peers computed, and lists the largest
// error of every number against the case's tolerance.
//
// Reading order: run.go (which runner a case needs), file.go (case.json and its
// tensors), setup.go (flags to a model with the case's weights), then one file a
// kind of case: model.go, packing.go, accumulation.go, variants.go, ranks.go (with
// rankfile.go and world.go, which runs a layout on goroutine ranks), generation.go,
// tables.go, pipeline.go, rope.go, muon.go. value.go and names.go know the names of ranks and files, routed.go
// and balance.go layers of experts. report.go compares and counts.
//
// The peers' conventions are set here, not by the caller: padded vocabulary
// columns count in the softmax where the case says so, and tensors are compared
// under the names and layouts of the case's files, Hugging Face's or Megatron's.
package modelcase
