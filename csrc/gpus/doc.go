// Package gpus asks NVIDIA's management library (NVML) what a host's GPUs are
// and how they fare: free memory, clocks and what slows them, temperature,
// memory errors, Xid events. It computes nothing on them and needs no CUDA.
//
// Reading order: gpus.go (what is known of a GPU), nvml.go (asking NVML; none.go where
// there is none), visible.go (which GPUs CUDA shows a process), xid.go (the driver's
// messages of errors).
package gpus
