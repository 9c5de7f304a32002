// Package share limits the work that nodes can cause for the server outside its writer. Shares limits how many
// comparisons and bytes each node may request in a period of time. Readings limits the memory of content that the
// server reads for all nodes together. The package does not use the writer, and identifies nodes only by their keys.
package share
