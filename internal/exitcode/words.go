package exitcode

// Reword changes every message's text, where it is set: by a program built to show that no code reads
// what is meant for people (reworded.go at the top).
var Reword func(text string) string

// worded is a message's text.
func worded(text string) string {
	if Reword == nil {
		return text
	}
	return Reword(text)
}
