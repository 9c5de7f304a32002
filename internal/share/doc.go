// Package share limits the work that nodes can cause for the server outside its writer. Shares limits how many
// comparisons and bytes each node may request in a period of time. Readings limits the memory of content that the
// server reads for all nodes together. The package does not know the writer, and knows only the keys of nodes.
package share
