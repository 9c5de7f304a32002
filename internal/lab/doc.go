// Package lab creates real hosts on one Linux machine. Each host boots Debian's own systemd and has its own network.
// So Puppet, apt and services work as on a server. Four hosts can boot within seconds.
//
// # What a host is
//
// A base is a directory with a bootstrapped Debian and the packages in the lab file. The cache stores a base under
// the digest of its Definition. A host consists of an overlay over a base, a network namespace that is connected to
// the lab's bridge, and a systemd-nspawn in its own control group. The overlay is mounted only in the mount namespace
// of the host's own processes, so the mount ends with them.
//
// A host with a Preparation has its own base. To build this base, the host boots in a separate lab, runs the script
// and is stopped. Then its overlay is copied into one directory. The finished base is used like any other base.
//
// # What remains when a command is killed
//
// Everything that a lab creates on the outer machine has a name that can be computed from the lab's state file. The
// state file is on disk before anything is created. So Down works even if Up was interrupted. Down removes everything
// with such a name, if it exists, and removes the state file last. Building a base and Chroot use a process namespace
// and a mount namespace that end with the command. A base gets its final name by a rename when it is complete. The
// lab of a preparation has a guard. The guard is a process that runs Down when the builder has ended.
//
// # Rejected
//
// We rejected container engines. The images of container engines do not boot systemd, and their installation
// permanently changes the machine's firewall. We rejected the named network namespaces of ip-netns. The first
// namespace makes a mount on /run/netns, which stays after the last namespace is removed.
package lab
