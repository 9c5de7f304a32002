// Package natsbus is the log, the blobs and the way between nodes and server,
// on NATS with JetStream.
//
// The log is one stream with one writer. Every append says after which
// sequence it comes; NATS refuses it if another event is there, and the writer
// that is refused ends. (Compare-and-set per subject was rejected: a deposed
// writer still owns the other subjects.)
//
// A node speaks on subjects that contain its public key and on no others:
//
//	n.<KEY>.<op>   node → server   calls and messages
//	i.<KEY>.<…>    server → node   answers
//	d.<KEY>.<op>   server → node   doorbells
//
// The bus enforces who may publish and subscribe where. That an answer goes to
// the node that asked, the server enforces: it answers only to i.<KEY>.… of
// the key in the subject, which nobody but the holder of the key can have used.
package natsbus
