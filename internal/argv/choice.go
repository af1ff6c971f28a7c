package argv

import (
	"strconv"
	"strings"
	"unicode"

	"monotron/internal/exitcode"
)

// Or joins words for a sentence: "a, b or c".
func Or(words ...string) string { return joined(words, " or ") }

// And joins words for a sentence: "a, b and c".
func And(words ...string) string { return joined(words, " and ") }

func joined(words []string, last string) string {
	n := len(words) - 1
	if n < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:n], ", ") + last + words[n]
}

// WrongChoice is the error of a flag that takes one of words and was given another:
// "--dtype must be f32, bf16 or fp16, not f8".
func WrongChoice(flag, given string, words ...string) error {
	return exitcode.Errorf(exitcode.Usage, "--%s must be %s, not %s", flag, Or(words...), Shown(given))
}

// Line is a command line to copy into a shell, which reads each of the words as it is.
func Line(words ...string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = Quoted(word)
	}
	return strings.Join(quoted, " ")
}

// Quoted is a word as a POSIX shell reads it: in single quotes where it has another meaning without.
func Quoted(word string) string {
	plain := func(r rune) bool {
		return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:=,+@%", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Shown is a value in a message: in quotes where it is empty or would run into the words around it.
func Shown(value string) string {
	if value == "" || strings.ContainsAny(value, " \t\r\n\"'") {
		return strconv.Quote(value)
	}
	return value
}
