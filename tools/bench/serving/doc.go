// Package serving is `monotron bench serve`: it asks a server of OpenAI's API as many clients do
// that know nothing of each other, and says how soon it answers.
//
// Reading order: serving.go (flags), load.go (when requests go out), client.go (one request),
// result.go (what came back).
package serving
