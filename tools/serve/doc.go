// Package serve is the command serve: a trained model behind OpenAI's HTTP API, for many
// clients at once.
//
// Reading order: serve.go (flags, from start to end), processes.go (ranks that a launcher has started),
// follow.go (weights of a run that continues), server.go (what every request passes), intake.go (memory of
// bodies), ask.go (the fields that completions and chats share), completions.go, chat.go, answer.go (answers
// complete or streamed), then the other endpoints: models.go, megatron.go (Megatron's PUT /api), metrics.go,
// page.go. Batching and generation are in megatron/inference.
package serve
