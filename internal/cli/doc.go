// Package cli is the command line. The package defines flags, arguments and the
// output for people. The package uses other packages only through the interfaces
// and functions that it declares.
//
// # Rules of the terminal
//
// All commands follow these rules:
//
//   - Standard output carries the result of the command and nothing else.
//   - Standard error carries hints, questions, nodes that did not answer, and
//     errors. Main prints an error once, as "tutti: TEXT". A command that has
//     already printed what is wrong returns a CommandExit, and Main then prints
//     nothing.
//   - With --json, standard output is one JSON document. While a job is watched,
//     each line is one JSON object. Hints and errors stay text on standard error.
//   - Only the live tree of a job is coloured and drawn again. The tree needs a
//     terminal as standard output and a TERM other than "dumb". The tree has no
//     colours if NO_COLOR is set. The terminal's width limits the tree's lines.
//   - A pipe or a file gets plain lines. Plain lines have no limit of length, and
//     a line that was printed is never removed.
//   - All text goes through a visibleWriter. So texts of nodes, operators and
//     servers cannot move the cursor or change colours. Only rawOf writes bytes
//     unchanged, such as a file of the code or a backup.
//   - A text from others cannot leave its line or its cell. See printLine and
//     table.
//   - A command that changes much asks first, on standard error. The command
//     reads the answer from the terminal. Without a terminal the command changes
//     nothing, except with --yes.
//   - An interrupt (Ctrl-C) ends the command. The job continues, because it runs
//     on the server.
//   - Exit codes are part of the interface. See exit.go and "tutti --help".
//
// # Rules of the help
//
// The rules are in docs/style.md, and TestHelp checks them. A Short begins with a verb.
// Each sentence of a Long makes one statement. Each command that does something
// has an example.
package cli
