//go:build !reworded

package fault

// worded is a message's text.
func worded(text string) string { return text }
