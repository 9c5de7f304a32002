// Command tutti orchestrates Puppet and OpenVox fleets. One binary is the
// server, the agent and the command line.
package main

func main() {}
