// Package pickle reads what Python's pickle and torch.save wrote, without ever
// running anything: an interpreter over a fixed list of opcodes and a fixed list
// of classes (classes.go), whose objects become inert records. It also writes
// both, in the subset that torch.load(weights_only=True) accepts.
//
// What is read is hostile: the pickle's size, stack, memo, number of objects
// and depth are limited; tensors are checked against their storages before
// anyone reads them, and no size that a file claims is allocated before the
// bytes are there.
//
// Reading order: value.go (what a pickle becomes), classes.go (what is
// allowed), machine.go and opcodes.go (the interpreter), build.go (who refuses a
// name; REDUCE and BUILD), tensor.go, zip.go and stream.go (torch's two containers), encode.go
// and save.go (writing). Of numpy's arrays there are records, which only the tests read.
package pickle
