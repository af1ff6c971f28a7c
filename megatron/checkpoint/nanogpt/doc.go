// Package nanogpt reads and writes ckpt.pt of nanoGPT: GPT-2 with weights
// [out, in], its AdamW, iter_num and model_args. Names may begin with _orig_mod.
// (torch.compile). A model without biases (bias=False) reads as one whose biases
// are zero.
//
// nanoGPT computes the exact (erf) GELU; what was trained with the tanh form says
// so in config.activation_function, which nanoGPT does not read.
package nanogpt
