// Package lab makes real hosts on one Linux machine. Each boots Debian's own systemd and has its own network, so that
// Puppet, apt and services behave on it as on a server. Four hosts are up within seconds.
//
// # What a host is
//
// A base is a directory with a bootstrapped Debian and the packages that a lab file bakes in. It is cached under the
// digest of its Definition. A host is an overlay over a base, a network namespace joined to the lab's bridge, and a
// systemd-nspawn in its own control group. The overlay is mounted in the mount namespace of the host's own processes,
// and ends with them.
//
// A host with a Preparation has its own base. To build it, the host boots in its own lab, runs the script and is
// switched off. Its overlay is copied into one directory. After that, the base is used like any other.
//
// # What remains when a command is killed
//
// Everything that a lab makes on the outer machine has a name that follows from the lab's state file. The state file is
// on disk before anything is made. So Down need not know how far Up came: it removes every name of the state file,
// whether it exists or not, and the state file last. Base building and Chroot run in a process and mount namespace that
// ends with the command. A base gets its final name by a rename when it is complete. The lab of a preparation has a
// guard: a process that runs Down when the builder has ended.
//
// # Rejected
//
// A container engine was rejected because its images do not boot systemd, and because its installation changes the
// machine's firewall for good. Named network namespaces of ip-netns were rejected because the first one leaves a mount
// on /run/netns that stays after the last one is gone.
package lab
