// Package share bounds what nodes may cost the server beside its writer: Shares the comparisons and bytes that each node asks for in a
// time, Readings the bytes that are in memory for all nodes at once. It knows no writer and no node but by its key.
package share
