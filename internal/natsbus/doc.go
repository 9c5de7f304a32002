// Package natsbus contains the log, the blobs, and the transport between nodes and the server. All three use NATS
// with JetStream.
//
// The log is one stream with one writer. Every append names the sequence of the event before it. NATS refuses the
// append if that event is not the last one. If an append is refused, its writer ends. (Rejected: a
// compare-and-set for each subject. With it, a writer that was replaced could still write to all subjects to
// which the new writer has not written yet.)
//
// A node uses only subjects that contain its public key:
//
//	n.<KEY>.<op>   node → server   calls and messages
//	i.<KEY>.<…>    server → node   answers
//	d.<KEY>.<op>   server → node   doorbells
//
// The bus enforces which connection may publish and subscribe to which subjects. The server enforces that an answer
// goes only to the node that sent the request. The server answers only to i.<KEY>.…, where KEY is the key in the
// request's subject. Only the owner of that key can use the subject.
package natsbus
