// Package cuda is the CUDA device: a library of kernels, libmt_cuda.so, that is
// found and opened when it is asked for. Nothing of CUDA is needed to build or to
// start this program. The same kernels, compiled for the CPU (csrc/cuda/emu), are
// libmt_cudaemu.so: a device for tests.
//
// Reading order: cuda.go (finding the library), table.cu (its ops, and opening a GPU), op.h
// and kernel.h (how an op and a kernel are written), then the ops by name. A product:
// matmul.cu (who makes it), blaslt.cu (cuBLASLt), gemm_half.cu and gemm_f32.cu (our own),
// leaves.h (in one order, for --layout-invariant).
// Attention: attention.cu (who makes it), attention_half.cu, attention_backward_half.cu and
// attention_f32.cu (our own), cudnn_attention.cu over cudnn_graph.cu and cudnn_plan.cu.
// Around the ops: streams.cu, staging.cu (copies), graphs.cu.
package cuda
