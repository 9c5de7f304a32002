// Package pidfd waits for processes that need not be our children. The package uses the
// kernel's process file descriptors. The package therefore does not poll. The package
// also cannot confuse the process with a later process of the same pid. Agents run only
// on Linux. On other systems the package exists only because the command `tutti` needs it
// to compile.
package pidfd
