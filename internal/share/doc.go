// Package share bounds what nodes may cost the server outside its writer. Shares bounds the comparisons and bytes that each node asks
// for in a time. Readings bounds the bytes in memory for all nodes at once. It does not know the writer, and knows nodes only by key.
package share
