// Package cli is the command line. It defines flags, arguments and the output
// for people. It uses other packages only through the interfaces and functions
// that it declares.
//
// # Rules of the terminal
//
// All commands follow these rules:
//
//   - Standard output carries the result of the command and nothing else.
//   - Standard error carries hints, questions, nodes that did not answer, and
//     errors. Main prints an error once, as "tutti: TEXT". A command that has
//     already said what is wrong returns a CommandExit, which prints nothing.
//   - With --json standard output is JSON: one document, or one object a line
//     while a job is watched. Hints and errors stay text on standard error.
//   - Nothing is coloured or drawn again except the live tree of a job. The tree
//     needs a terminal as standard output and a TERM that is not "dumb". It has
//     no colours if NO_COLOR is set. Its lines are cut to the terminal's width.
//   - A pipe or a file gets plain lines. No line is cut to a width, and a line
//     that was printed is never taken back.
//   - All text goes through a visibleWriter: texts of nodes, operators and
//     servers cannot move the cursor or change colours. Only rawOf writes bytes
//     as they are, such as a file of the code or a backup.
//   - A text that others have written stays in its line and its cell. See
//     printLine and table.
//   - A command that changes much asks first, on standard error. It reads the
//     answer from the terminal. Without a terminal it changes nothing unless
//     --yes is given.
//   - An interrupt (Ctrl-C) ends the command. A job goes on, because it lives on
//     the server.
//   - Exit codes are part of the interface: see exit.go and "tutti --help".
//
// # Rules of the help
//
// docs/style.md has them, and TestHelp checks them. A Short begins with a verb.
// Each sentence of a Long makes one statement. Each command that does something
// has an example.
package cli
