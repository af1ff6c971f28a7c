// Package hf reads and writes the folders of Hugging Face's transformers: config.json and
// safetensors files of GPT-2, GPT-Neo, GPT-NeoX, Llama, Mistral, Phi-3, Qwen2, Qwen3, OLMo 2,
// SmolLM3, Starcoder 2 and BLOOM, and with experts of Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE,
// GLM-4.5, DeepSeek, Qwen3-Next, Qwen3.5, LFM2, Granite 4, Mamba-2 and Nemotron-H. It gives their tensors under
// Megatron's names (mcore GPT with global layer numbers) and takes them back.
//
// A Mapping is a list of rules, one a Megatron tensor: which tensors of theirs
// hold its rows, in which order, transposed or not. One gather and one scatter
// then serve every family, for weights, gradients and optimizer state alike.
//
// Read config.go, reading.go, rotary.go and window.go (config.json to spec.Model), family.go (what each
// family can express), mapping.go (the rules), experts.go (mixtures: all of these for their part), mapped.go
// (a checkpoint seen through them), folder.go (safetensors), wrapper.go (the text part of models that take
// images) and torch.go (what torch.save wrote), export.go and write.go. peer.go and peer_experts.go read
// config.json a second time, as transformers' classes do, for `convert --verify`.
package hf
