// Package schedule says what each stage of a pipeline does and when, as data:
// lists of actions made by pure functions of (stage, stages, chunks,
// micro-batches, group). One executor carries a list out; its value type is free:
// tensors when training, seconds when simulating.
//
// A model cut over `stages` stages of `chunks` chunks each has stages x chunks
// virtual stages; number v lies on stage v mod stages as chunk v / stages.
// Activations go from a virtual stage to the next one, gradients back; from the
// last stage's chunk c the next virtual stage is the first stage's chunk c+1.
//
// Invariants, which CheckLists proves for a set of lists before they run:
//   - every (chunk, micro-batch) is forwarded once, then backwarded once, and
//     gradients of a chunk are summed in the order of micro-batches, so that
//     every schedule and every cut adds the same numbers in the same order;
//   - between two stages, sends and receives are in the same order;
//   - links may be rendezvous: a transfer ends only when both ends have come to
//     it, and no stage ever waits in a circle.
//
// Reading order: action.go, onefoneb.go, interleaved.go, config.go (which of them),
// run.go (the executor), wires.go and check.go (the proof), program.go and simulate.go (the same on a
// clock), meter.go (a measured clock); partition.go, layout.go and method.go say which layers a
// virtual stage holds.
package schedule
