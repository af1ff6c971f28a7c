// Package command holds what the tools share: Megatron's argument rules in front of
// urfave/cli, the tokenizer flags, prompts, and the device flags. Reading order: command.go
// (arguments), shown.go (flags as completion and manual pages see them), prompt.go, device.go,
// tied_linux.go (processes that a tool starts).
package command
