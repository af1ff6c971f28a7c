// Package shell holds commands for the shell of whoever uses the program:
// completion.go prints a script that completes commands and flags, man.go a manual page, version.go the
// version.
// help.go sets how help is printed. All ask the commands themselves, so nothing is listed twice.
package shell
