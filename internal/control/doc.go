// Package control reads control repositories, as r10k users have them: a git repository whose branches are environments,
// with a Puppetfile that names modules. It fetches what they name into a cache, and puts the code of an environment
// together (ADR 0035). It runs the program git and asks the address of a forge, and executes nothing of a repository.
package control
