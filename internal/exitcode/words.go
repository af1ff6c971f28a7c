//go:build !reworded

package exitcode

// worded is a message's text.
func worded(text string) string { return text }
