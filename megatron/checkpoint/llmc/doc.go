// Package llmc reads and writes the files of llm.c: model_<step>.bin, a header of
// 256 int32 and the weights of GPT-2 in f32 (version 3) or bf16 (version 5), and
// state_<step>_<rank>.bin with AdamW's moments and main parameters; DONE_<step> marks a
// complete pair (train_gpt2.cu, train_gpt2.py).
//
// Each sort of tensor stands once with all layers behind one another, [out, in];
// the vocabulary is padded to a multiple of 128.
package llmc
