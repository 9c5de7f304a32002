// Package pidfd waits for processes that need not be our children, by the
// kernel's process file descriptors: nothing is polled, and a pid that was
// given to another process is not mistaken for the one that was meant. Agents
// run on Linux; elsewhere the package is there so that the command line builds.
package pidfd
