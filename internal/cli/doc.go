// Package cli is the command line: flags, arguments and what a person sees. It
// reaches everything else through the interfaces and functions that it declares.
package cli
