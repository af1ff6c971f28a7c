// Package chat is the command chat: a conversation with a model in the terminal, or with a file of
// questions, by the engine of serve in one process.
//
// Reading order: chat.go (the command), talk.go (a conversation and its answers), commands.go (lines
// that begin with a slash), lines.go (where lines come from).
package chat
