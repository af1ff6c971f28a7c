package chat

import (
	"strings"

	"monotron/internal/exitcode"
)

// commands are those that a line may begin with, and what they do.
var commands = [][2]string{
	{"/reset", "begin a new conversation"},
	{"/system", "TEXT: set the system text, and begin a new conversation; without TEXT show it"},
	{"/help", "list the commands"},
	{"/exit", "end the program, like Ctrl-D"},
}

// commandOf is the command of a line that is one: a slash and letters at its beginning. A text that begins
// so can be sent behind a space.
func commandOf(line string) (name, rest string, is bool) {
	name, rest, _ = strings.Cut(line, " ")
	if len(name) < 2 || name[0] != '/' || strings.Trim(name[1:], "abcdefghijklmnopqrstuvwxyz") != "" {
		return "", "", false
	}
	return name, strings.TrimSpace(rest), true
}

// command carries a command out; end reports that it was the last.
func (t *talk) command(name, rest string) (end bool, err error) {
	switch {
	case name == "/exit" || name == "/quit":
		return true, nil
	case name == "/reset":
		t.reset()
	case name == "/system" && t.NoChat != nil:
		return false, exitcode.Errorf(exitcode.Usage, "/system: %w", t.NoChat)
	case name == "/system" && rest == "":
		t.notes.Printf("system text: %q\n", t.options.system)
	case name == "/system":
		t.options.system = rest
		t.reset()
	case name == "/help":
		for _, one := range commands {
			t.notes.Printf("  %-8s %s\n", one[0], one[1])
		}
	default:
		return false, exitcode.Errorf(exitcode.Usage, "the command %s does not exist; /help lists the commands; to send the line as text, write a space before it", name)
	}
	return false, nil
}

// reset begins a new conversation.
func (t *talk) reset() {
	t.turns, t.forgotten, t.text = nil, 0, ""
	t.notes.Printf("a new conversation\n")
}
